//! What things cost on a paper's device, as far as it is published how fast that is.

use clew_core::CodecKind;

use super::Costs;
use crate::device::Device;
use crate::error::LabError;

/// Of the table of costs.
const PAGE_BYTES: u32 = 4096;

impl Device {
    /// `costs` on this device: how its flash ages as its source says; the rest slowed by how much longer it takes to compress a page with LZ4, or
    /// by its `cpu_scale` if it has one. One factor for everything: nothing finer is published.
    pub fn costs(&self, costs: Costs) -> Result<Costs, LabError> {
        let factor = match self.numbers.get("cpu_scale") {
            Some(number) => number.value,
            None => {
                let hint = "state how much slower it is than the cost table: --cpu-scale";
                let bytes_per_second = self.need("lz4_page_bytes_per_second", hint)?;
                let page_ns = f64::from(PAGE_BYTES) / bytes_per_second * 1e9;
                page_ns / costs.codec(CodecKind::Lz4, PAGE_BYTES, PAGE_BYTES)?.out_ns
            }
        };
        let mut costs = costs.slowed(factor, &self.name);
        if let Some(flash) = &mut costs.flash {
            let known = |field: &str| self.numbers.get(field).map(|number| number.value);
            let share = known("flash_read_share_at_90_pct").filter(|share| *share <= 1.0);
            flash.read_share_at_90 = share.unwrap_or(flash.read_share_at_90);
            let share = known("flash_write_share_at_90_pct").filter(|share| *share <= 1.0);
            flash.write_share_at_90 = share.unwrap_or(flash.write_share_at_90);
            let each_ns = known("flash_write_bytes_per_second").map(|speed| 1e9 / speed);
            flash.write_byte_ns = each_ns.unwrap_or(flash.write_byte_ns);
        }
        Ok(costs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_source_states_is_refused_by_name() {
        let device = Device::named("p20").expect("it is known");
        let error = device.costs(Costs::reference()).expect_err("nobody says how fast it is");
        let text = error.to_string();
        assert!(text.contains("p20") && text.contains("lz4_page_bytes_per_second"), "{text}");
        assert!(error.is_bad_input());
        let unknown = Device::named("pixel-99").expect_err("there is none").to_string();
        assert!(unknown.contains("pixel-99") && unknown.contains("pixel-7"), "{unknown}");
    }

    #[test]
    fn a_device_is_as_slow_as_its_source_says() {
        let device = Device::named("pixel-6-pro").expect("it is known");
        let costs = device.costs(Costs::reference()).expect("its speed is published");
        let page = costs.codec(CodecKind::Lz4, 4096, 4096).expect("a row");
        let bytes_per_second = 4096.0 / page.out_ns * 1e9;
        assert!((bytes_per_second / 205.1e6 - 1.0).abs() < 1e-9, "{bytes_per_second}");
        assert!(costs.name.ends_with("on pixel-6-pro"));
    }
}
