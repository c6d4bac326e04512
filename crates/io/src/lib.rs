//! Buffers, engines, codecs; runs the plans of `outcore-plan`.
