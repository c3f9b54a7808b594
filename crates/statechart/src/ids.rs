//! Small integer ids of the states, triggers and names of a chart.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(crate) $inner);

        impl $name {
            /// Returns the id as a table index.
            #[inline]
            pub fn index(self) -> usize {
                usize::from(self.0)
            }

            /// Returns the id as an integer.
            #[inline]
            pub fn get(self) -> $inner {
                self.0
            }
        }
    };
}

id!(
    /// A leaf state: agents are always in exactly one. See [`Chart::states`](crate::Chart::states).
    StateId(u8)
);
id!(
    /// A trigger. A chart with timeouts has the trigger `timeout`.
    TriggerId(u8)
);
id!(
    /// A declared field of an agent.
    FieldId(u16)
);
id!(
    /// A declared world value.
    WorldId(u16)
);
id!(
    /// A value that guards read from the context, such as `post.score` in `context.post.score`.
    ContextId(u16)
);
