//! Small numbers for what a chart names.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(crate) $inner);

        impl $name {
            /// The id as a place in a table.
            #[inline]
            pub fn index(self) -> usize {
                usize::from(self.0)
            }

            /// The id as a number, for tables of others.
            #[inline]
            pub fn get(self) -> $inner {
                self.0
            }
        }
    };
}

id!(
    /// A state that an agent can be in: one that has no states inside. See [`Chart::states`](crate::Chart::states).
    StateId(u8)
);
id!(
    /// A trigger. `timeout` is one of them in a chart with timeouts.
    TriggerId(u8)
);
id!(
    /// A field of an agent that the chart declares, reads or changes.
    FieldId(u16)
);
id!(
    /// A value of the world that the chart declares, reads or changes.
    WorldId(u16)
);
id!(
    /// A value that guards read from the context, such as `post.score` in `context.post.score`.
    ContextId(u16)
);
