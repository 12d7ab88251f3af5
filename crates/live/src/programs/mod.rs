//! Programs: their processes, their mappings and memory, and those that are left alone.

pub mod advice;
pub mod alone;
pub mod calls;
pub mod environment;
pub mod facts;
pub mod kcmp;
pub mod lent;
pub mod let_go;
pub mod looks;
pub mod mappings;
pub mod mem_file;
pub mod memory;
pub mod name;
pub mod not_inherited;
pub mod outside;
pub mod pagemap;
pub mod plea;
pub mod proc_stat;
pub mod process;
pub mod regions;
pub mod robust;
pub mod scan;
pub mod scope;
pub mod shared;
pub mod sharing;
pub mod without_agent;
