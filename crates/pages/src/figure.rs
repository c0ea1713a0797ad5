//! What the native allocator tells of itself: the names and the order.

macro_rules! figures {
    ($($(#[$help:meta])* $figure:ident $name:literal,)*) => {
        /// A figure of the native allocator. Its number is its place in [`Figures`].
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Figure {
            $($(#[$help])* $figure,)*
        }

        impl Figure {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$figure),*];

            /// Whether figures of several processes add up; else their largest counts.
            pub const fn adds_up(self) -> bool {
                !matches!(
                    self,
                    Self::CollapseMaxMicros
                        | Self::Patience
                        | Self::ReleaseRate
                        | Self::HardLimit
                        | Self::SoftLimit
                        | Self::Held
                        | Self::PeakResident
                        | Self::PeakLive
                )
            }

            /// Whether it is counted since the beginning of the process, so that it never falls.
            pub const fn never_falls(self) -> bool {
                matches!(
                    self,
                    Self::TransferHits
                        | Self::TransferMisses
                        | Self::BrokenSoFar
                        | Self::Restored
                        | Self::CollapseAttempts
                        | Self::CollapseFailures
                        | Self::CollapseMicros
                        | Self::CollapseMaxMicros
                        | Self::ReleasedDemand
                        | Self::ReleasedAsked
                        | Self::ReleasedBackground
                        | Self::ReleasedDrained
                        | Self::ReleasedPressure
                        | Self::Subreleased
                        | Self::WantedAgain
                        | Self::Refused
                        | Self::BegunSmall
                        | Self::OverLimit
                        | Self::FromCache
                        | Self::FromKernel
                        | Self::BackgroundMicros
                        | Self::PeakLive
                        | Self::CacheHits
                )
            }

            /// The name used in statistics; the unit stands last.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$figure => $name,)*
                }
            }
        }
    };
}

figures! {
    /// Bytes of spans that hold objects, or free objects that are cached or share a span with others.
    Live "live_bytes",
    /// Bytes of empty huge pages that are kept for what comes next.
    Cached "cached_bytes",
    /// Free bytes on huge pages that are partly used.
    Free "free_bytes",
    /// Bytes that went back or have not come, on huge pages that are partly used.
    Unbacked "unbacked_bytes",
    /// Bytes of empty huge pages that went back.
    Vacant "vacant_bytes",
    /// Bytes of spans on whole huge pages: the coverage is their part of the live ones.
    Covered "covered_bytes",
    /// Of the live bytes, free objects in the caches of processors.
    InCaches "in_caches_bytes",
    /// Of the live bytes, free objects in the transfer caches.
    InTransfer "in_transfer_bytes",
    /// Refills of a cache from its transfer cache.
    TransferHits "transfer_hits",
    /// Refills of a cache from spans.
    TransferMisses "transfer_misses",
    /// Spans that are handed out.
    Spans "spans",
    /// Huge pages that hold spans below a huge page.
    Filler "filler_hugepages",
    /// Of these, those that have small pages: something went back, or they began so.
    Broken "broken_hugepages",
    /// Of these, those that have filled again.
    Refilled "refilled_hugepages",
    /// Huge pages that were ever broken.
    BrokenSoFar "broken_so_far",
    /// Huge pages that were made whole again.
    Restored "restored_so_far",
    /// Attempts to make one whole.
    CollapseAttempts "collapse_attempts",
    /// Of these, failures.
    CollapseFailures "collapse_failures",
    /// Time that the attempts took.
    CollapseMicros "collapse_us",
    /// The longest of them.
    CollapseMaxMicros "collapse_max_us",
    /// Regions of 1 GiB for large spans.
    Regions "regions",
    /// Bytes of spans in regions.
    RegionLive "region_live_bytes",
    /// Bytes behind large spans on their last huge pages.
    Slack "slack_bytes",
    /// Bytes that large spans have left on huge pages that others still use.
    Abandoned "abandoned_bytes",
    /// Bytes that went back because recent demand did not justify keeping them.
    ReleasedDemand "released_demand_bytes",
    /// Because the program asked.
    ReleasedAsked "released_asked_bytes",
    /// By the steady release in the background.
    ReleasedBackground "released_background_bytes",
    /// With broken huge pages that had drained.
    ReleasedDrained "released_drained_bytes",
    /// Because the kernel had refused memory, a limit was near, or others needed it.
    ReleasedPressure "released_pressure_bytes",
    /// Of all these, bytes of huge pages that were still in use.
    Subreleased "subreleased_bytes",
    /// Of the free bytes those that were kept, when a release was due last, as recent demand will want
    /// them.
    KeptForDemand "kept_for_demand_bytes",
    /// Bytes that had gone back and were wanted again.
    WantedAgain "wanted_again_bytes",
    /// Seconds of past demand for which memory is kept.
    Patience "patience_s",
    /// Mebibytes that may go back in a second.
    ReleaseRate "release_rate_mib",
    /// Times that the kernel refused huge pages' memory.
    Refused "refused_so_far",
    /// Huge pages that began with small pages, as whole ones took long.
    BegunSmall "begun_small_so_far",
    /// The hard limit of what our own allocators hold together, in bytes; 0 for none.
    HardLimit "hard_limit_bytes",
    /// The soft one.
    SoftLimit "soft_limit_bytes",
    /// Bytes that they hold, if there is a limit.
    Held "held_bytes",
    /// Times that one of them refused for the hard limit.
    OverLimit "over_limit_so_far",
    /// Of the live bytes, free objects that lie in spans which hold others, or did a moment ago.
    InSpans "in_spans_bytes",
    /// Of these, what lies in empty spans that are kept for a moment.
    InEmptySpans "in_empty_spans_bytes",
    /// Bytes of page-mapped objects, which are not part of the native heap.
    MappedLive "mapped_live_bytes",
    /// Resident bytes that page-mapped objects have left for others.
    MappedWarm "mapped_warm_bytes",
    /// Huge pages that came out of the cache of empty ones.
    FromCache "hugepages_from_cache",
    /// Huge pages that the kernel gave.
    FromKernel "hugepages_from_kernel",
    /// Processor time of work beside the program: what went back, was mended, was tidied up.
    BackgroundMicros "background_us",
    /// Resident bytes of the heap. Measured when statistics are asked for.
    Resident "resident_bytes",
    /// Resident bytes of the allocator's own tables and caches. Measured as the heap's.
    Tables "tables_bytes",
    /// Of these, the page heap's own records. Measured as the heap's.
    PageHeap "pageheap_bytes",
    /// The most bytes of objects that were seen.
    PeakLive "peak_live_bytes",
    /// What heap and tables had resident together at that moment.
    PeakResident "peak_resident_bytes",
    /// Requests that the caches of processors have served for certain: objects that were in them at
    /// one look, and were gone at the next. There may have been many more.
    CacheHits "cache_hits_at_least",
}

/// How many figures there are.
pub const FIGURES: usize = Figure::ALL.len();

/// A value for each figure.
pub type Figures = [u64; FIGURES];
