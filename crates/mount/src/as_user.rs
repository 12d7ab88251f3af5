//! Makes things that belong to who asked for them, takes away, renames and changes what he may, and fills the room that he
//! may.
//!
//! They are made with the user's own identity, and not given to him afterwards: what bears the name by then may be
//! somebody else's. Whether he may was decided by the kernel (`default_permissions`), which knows all his groups; so
//! the lower directory's permissions are not asked again. Its sticky bit is: whoever has a name when it is taken away was
//! not known then. So is whose a file is: the kernel may know an owner who was it when the file was opened, and the
//! attributes of a file are its owner's to change. So is who has room: a file system may keep some for root, or for who has `CAP_SYS_RESOURCE`.

use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use rustix::io::{Errno, Result};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// This thread does things as somebody else, until it is dropped.
#[derive(Debug)]
pub struct AsUser {
    own: Option<(Uid, Gid)>,
}

impl AsUser {
    /// As this user, for a server of root's; as itself for any other, which serves its own user only.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn become_user(uid: u32, gid: u32) -> Result<AsUser> {
        let (own_uid, own_gid) = (Uid::effective(), Gid::effective());
        if !own_uid.is_root() || (uid, gid) == (own_uid.as_raw(), own_gid.as_raw()) {
            return Ok(AsUser { own: None });
        }
        let user = AsUser { own: Some((own_uid, own_gid)) };
        setfsgid(Gid::from_raw(gid));
        setfsuid(Uid::from_raw(uid));
        // They say nothing of failure, but what is set.
        let nobody = u32::MAX;
        let is = (setfsuid(Uid::from_raw(nobody)), setfsgid(Gid::from_raw(nobody)));
        if is != (Uid::from_raw(uid), Gid::from_raw(gid)) {
            return Err(Errno::PERM);
        }
        let mut sets = capabilities(None)?;
        sets.effective |= CapabilitySet::DAC_OVERRIDE;
        set_capabilities(None, sets)?;
        Ok(user)
    }
}

/// This thread, and those that it starts, have no more room than users have as whom they do things.
///
/// # Errors
/// If the system refuses.
pub fn leave_reserves() -> Result<()> {
    let mut sets = capabilities(None)?;
    sets.effective -= CapabilitySet::SYS_RESOURCE;
    set_capabilities(None, sets)
}

impl Drop for AsUser {
    fn drop(&mut self) {
        if let Some((uid, gid)) = self.own {
            // With root's identity the capabilities come back.
            setfsuid(uid);
            setfsgid(gid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserves_that_were_left_do_not_come_back() {
        leave_reserves().unwrap();
        for uid in [65534, Uid::effective().as_raw()] {
            drop(AsUser::become_user(uid, uid));
            let sets = capabilities(None).unwrap();
            assert!(!sets.effective.contains(CapabilitySet::SYS_RESOURCE), "{uid}: {sets:?}");
        }
    }
}
