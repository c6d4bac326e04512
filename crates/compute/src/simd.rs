//! The widest vector instructions that the processor has.
//!
//! Wheels are built for the oldest processors, but loops are several times faster with recent
//! instructions. A loop is therefore compiled for each instruction set, and the variant is chosen
//! at run time.

#![allow(unsafe_code)]

/// Runs `work`, compiled for the widest vectors that this processor has.
///
/// Functions that `work` calls must be `#[inline(always)]`. Results are the same on all processors:
/// the compiler neither reorders nor fuses operations.
#[inline(always)]
pub fn widest<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,fma")]
        fn wide<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        #[target_feature(enable = "avx2,bmi1,bmi2,fma")]
        fn middling<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        let has_avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("fma");
        let has_avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        if has_avx2 && has_avx512 {
            // SAFETY: the processor supports all enabled features.
            return unsafe { wide(work) };
        }
        if has_avx2 {
            // SAFETY: as above.
            return unsafe { middling(work) };
        }
    }
    work()
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_runs_the_work_once_and_returns_what_it_returns() {
        let mut runs = 0;
        let sum = super::widest(|| {
            runs += 1;
            (1..=10).sum::<u64>()
        });
        assert_eq!((runs, sum), (1, 55));
    }
}
