//! Beside an independent implementation, in both directions, and with streams that nobody wrote.

use proptest::prelude::*;

use super::super::tests::block_of;
use super::*;

fn packed(lzo: &mut Lzo, src: &[u8]) -> Vec<u8> {
    let mut dst = vec![0; src.len() + src.len() / 16 + 64];
    let bytes = lzo.compress(src, &mut dst).expect("there is room");
    dst.truncate(bytes);
    dst
}

fn unpacked(lzo: &mut Lzo, stream: &[u8], bytes: usize) -> Result<Vec<u8>, DecodeError> {
    let mut dst = vec![0xaa; bytes];
    lzo.decompress(stream, &mut dst).map(|()| dst)
}

/// Streams by hand, from the documented format: bytes, and what they say.
#[test]
fn every_instruction_means_what_the_format_says() {
    let mut lzo = Lzo::default();
    let cases: &[(&[u8], &[u8])] = &[
        (&[0x11, 0, 0], b""),
        // 17 + 4 literals.
        (&[21, b'a', b'b', b'c', b'd', 0x11, 0, 0], b"abcd"),
        // Few literals, then two bytes from one back; S = 1 literal behind.
        (&[18, b'a', 0b0001, 0, b'b', 0x11, 0, 0], b"aaab"),
        // A copy of four from two back with two literals, then a literal run of four.
        (
            &[20, b'x', b'y', b'z', 0b0110_0100, 0, 1, b'1', b'2', b'3', b'4', 0x11, 0, 0],
            b"xyzyzyz1234",
        ),
        // Seven from three back; a length in two bytes: 31 + 2 + 255 + 9 from one back.
        (&[20, b'x', b'y', b'z', 0b1100_1000, 0, 0x11, 0, 0], b"xyzxyzxyzx"),
        (&[18, b'q', 32, 0, 9, 0, 0, 0x11, 0, 0], &[b'q'; 1 + 31 + 2 + 255 + 9]),
    ];
    for (stream, wanted) in cases {
        let read = unpacked(&mut lzo, stream, wanted.len());
        assert_eq!(read.as_deref(), Ok(*wanted), "{stream:?}");
        for bytes in [wanted.len() + 1, wanted.len().saturating_sub(1)] {
            assert!(bytes == wanted.len() || unpacked(&mut lzo, stream, bytes).is_err());
        }
        for cut in 0..stream.len() {
            assert!(unpacked(&mut lzo, &stream[..cut], wanted.len()).is_err(), "{stream:?} {cut}");
        }
        let longer = [stream, &[0][..]].concat();
        assert!(unpacked(&mut lzo, &longer, wanted.len()).is_err(), "what is behind the end");
    }
    // From before the first byte; three bytes from 2 KiB back after four literals.
    assert!(unpacked(&mut lzo, &[18, b'a', 0b0000_0100, 0, 0x11, 0, 0], 3).is_err());
    let count = 3 + 15 + 7 * 255 + 249;
    let literals: Vec<u8> = (0..count).map(|at| (at % 251) as u8).collect();
    let stream = [&[0, 0, 0, 0, 0, 0, 0, 0, 249][..], &literals, &[0, 0, 0x11, 0, 0]].concat();
    let wanted = [&literals[..], &literals[count - 2049..][..3]].concat();
    assert_eq!(unpacked(&mut lzo, &stream, wanted.len()).as_deref(), Ok(&wanted[..]));
}

/// Data of every kind, with repetitions at every distance.
fn data() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..600),
        (any::<u8>(), 1usize..3000).prop_map(|(byte, count)| vec![byte; count]),
        (any::<u64>(), 1usize..30).prop_map(|(seed, pages)| block_of(pages, seed)),
    ];
    (proptest::collection::vec(piece, 1..6), any::<bool>()).prop_map(|(pieces, twice)| {
        let once = pieces.concat();
        match twice {
            true => [&once[..], &once].concat(),
            false => once,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn an_independent_reader_and_an_independent_writer_agree(chunks in proptest::collection::vec(data(), 1..4)) {
        // One table for all, as a thread has it.
        let mut lzo = Lzo::default();
        for src in chunks {
            let ours = packed(&mut lzo, &src);
            let mut read = vec![0; src.len()];
            let bytes = lzokay::decompress::decompress(&ours, &mut read).expect("a stream");
            prop_assert_eq!(bytes, src.len());
            prop_assert_eq!(&read, &src);
            let theirs = lzokay::compress::compress(&src).expect("it compresses");
            // Of nothing the other one writes what is no end; nobody compresses nothing.
            let streams = if src.is_empty() { vec![&ours] } else { vec![&ours, &theirs] };
            for stream in streams {
                prop_assert_eq!(&unpacked(&mut lzo, stream, src.len()).expect("a stream"), &src);
                prop_assert!(unpacked(&mut lzo, stream, src.len() + 1).is_err());
                if let Some(less) = src.len().checked_sub(1) {
                    prop_assert!(unpacked(&mut lzo, stream, less).is_err());
                }
                let mut part = vec![0; src.len() / 3];
                lzo.decompress_prefix(stream, &mut part).expect("it is cheaper").expect("a stream");
                prop_assert_eq!(&part[..], &src[..src.len() / 3]);
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_not_written(src in data(), room in 0usize..4000) {
        let mut lzo = Lzo::default();
        let whole = packed(&mut lzo, &src);
        let mut dst = vec![0; room];
        let bytes = Lzo::default().compress(&src, &mut dst);
        prop_assert_eq!(bytes, (whole.len() <= room).then_some(whole.len()));
    }

    #[test]
    fn bytes_that_nobody_wrote_are_an_error_or_as_long_as_asked(
        mut stream in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..300),
            data().prop_map(|src| packed(&mut Lzo::default(), &src)),
        ],
        flips in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..4),
        bytes in 0usize..5000,
    ) {
        for (at, with) in flips {
            if let Some(byte) = stream.get_mut(usize::from(at)) {
                *byte ^= with;
            }
        }
        let mut lzo = Lzo::default();
        let mut guarded = vec![0x55; bytes + 16];
        // Never beyond what it was handed: that would panic; what is behind stays.
        let read = lzo.decompress(&stream, &mut guarded[..bytes]);
        prop_assert!(guarded[bytes..].iter().all(|byte| *byte == 0x55));
        if read.is_ok() {
            let mut again = vec![0; bytes];
            let other = lzokay::decompress::decompress(&stream, &mut again);
            prop_assert_eq!(other.ok(), Some(bytes), "read, and another reader refuses it");
            prop_assert_eq!(&again, &guarded[..bytes]);
        }
    }
}

#[test]
fn what_was_compressed_before_makes_no_difference() {
    let mut lzo = Lzo::default();
    let one = block_of(4, 1);
    let first = packed(&mut lzo, &one);
    for seed in [1, 2, 1] {
        let src = block_of(4, seed);
        let stream = packed(&mut lzo, &src);
        assert_eq!(unpacked(&mut lzo, &stream, src.len()), Ok(src));
    }
    assert_eq!(packed(&mut lzo, &one), first);
}
