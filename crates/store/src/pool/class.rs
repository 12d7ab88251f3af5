//! Size classes: which objects share a slab.
//!
//! Sizes go from 32 bytes to a frame in steps of 16. A slab of a class has the number of frames
//! (1 to 8) that wastes least; ties go to the larger, which keeps the kernel's page tables and
//! radix tree of the sparse arena dense. Sizes whose slabs would look alike are one class.

/// Bytes of a frame, the unit in which the pool takes memory and gives it back.
pub const FRAME_BYTES: usize = 4096;
/// Frames of address space that every slab has; it uses the first few.
pub const SLAB_FRAMES: usize = 8;
/// Address space of a slab, bytes.
pub const SLAB_BYTES: usize = SLAB_FRAMES * FRAME_BYTES;
/// Largest object, bytes, header included.
pub const MAX_OBJECT_BYTES: usize = FRAME_BYTES;

const STEP: usize = 16;
const MIN_OBJECT_BYTES: usize = 32;

/// What the slabs of one class look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassShape {
    /// Bytes of an object, header included.
    pub object_bytes: usize,
    /// Frames of a full slab.
    pub frames: u8,
    /// Objects of a full slab.
    pub objects: u16,
}

impl ClassShape {
    fn of(object_bytes: usize) -> ClassShape {
        let mut best = (1, usize::MAX);
        for frames in 1..=SLAB_FRAMES {
            let waste = frames * FRAME_BYTES % object_bytes;
            // waste/frames <= best/best_frames, without division
            if best.1 == usize::MAX || waste * best.0 <= best.1 * frames {
                best = (frames, waste);
            }
        }
        let objects = best.0 * FRAME_BYTES / object_bytes;
        ClassShape { object_bytes, frames: best.0 as u8, objects: objects as u16 }
    }

    /// Frames that the first `objects` objects of a slab reach into.
    pub fn frames_of(&self, objects: u16) -> u8 {
        (usize::from(objects) * self.object_bytes).div_ceil(FRAME_BYTES) as u8
    }
}

/// All classes, by size.
#[derive(Debug)]
pub struct ClassTable {
    shapes: Vec<ClassShape>,
    by_step: [u8; MAX_OBJECT_BYTES / STEP + 1],
}

impl Default for ClassTable {
    fn default() -> ClassTable {
        ClassTable::new()
    }
}

impl ClassTable {
    /// The table; always the same.
    pub fn new() -> ClassTable {
        let mut shapes: Vec<ClassShape> = Vec::new();
        let mut by_step = [0; MAX_OBJECT_BYTES / STEP + 1];
        let mut steps = Vec::new();
        for step in (MIN_OBJECT_BYTES / STEP..=MAX_OBJECT_BYTES / STEP).rev() {
            let shape = ClassShape::of(step * STEP);
            let same = |s: &ClassShape| s.frames == shape.frames && s.objects == shape.objects;
            if !shapes.last().is_some_and(same) {
                shapes.push(shape);
            }
            steps.push((step, shapes.len() - 1));
        }
        shapes.reverse();
        for (step, from_end) in steps {
            by_step[step] = (shapes.len() - 1 - from_end) as u8;
        }
        for step in 0..MIN_OBJECT_BYTES / STEP {
            by_step[step] = by_step[MIN_OBJECT_BYTES / STEP];
        }
        ClassTable { shapes, by_step }
    }

    /// The class of objects of `bytes` bytes.
    ///
    /// # Panics
    /// If they are more than [`MAX_OBJECT_BYTES`].
    pub fn class_of(&self, bytes: usize) -> u8 {
        self.by_step[bytes.div_ceil(STEP)]
    }

    /// All shapes, smallest objects first; the index is the class.
    pub fn shapes(&self) -> &[ClassShape] {
        &self.shapes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_a_class_that_fits() {
        let table = ClassTable::new();
        assert!(table.shapes().len() < 254);
        for bytes in 1..=MAX_OBJECT_BYTES {
            let shape = table.shapes()[usize::from(table.class_of(bytes))];
            assert!(shape.object_bytes >= bytes);
            assert!(shape.object_bytes * usize::from(shape.objects) <= SLAB_BYTES);
            assert_eq!(shape.frames_of(shape.objects), shape.frames);
        }
    }

    #[test]
    fn tails_waste_little() {
        for shape in ClassTable::new().shapes() {
            let used = usize::from(shape.objects) * shape.object_bytes;
            let all = usize::from(shape.frames) * FRAME_BYTES;
            assert!((all - used) * 100 <= all * 12, "{shape:?}");
        }
    }
}
