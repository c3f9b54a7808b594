//! Room for the agents of a block, which is used again and again.

use std::ops::Deref;

use super::BLOCK;

/// Something for each agent of a list, in the order of the list.
pub(super) type Rows<T> = Box<[T; BLOCK]>;

/// Rows that are not in use.
#[derive(Debug)]
pub(super) struct Pool<T>(Vec<Rows<T>>);

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Copy + Default> Pool<T> {
    /// Rows with anything in them.
    #[inline]
    #[expect(clippy::unnecessary_box_returns, reason = "they are passed on and given back")]
    pub(super) fn take(&mut self) -> Rows<T> {
        self.0.pop().unwrap_or_else(|| Box::new([T::default(); BLOCK]))
    }

    /// Takes rows back.
    #[inline]
    pub(super) fn give(&mut self, rows: Rows<T>) {
        self.0.push(rows);
    }
}

/// What became of a list of agents.
pub(super) enum Divided {
    All,
    Nobody,
    /// These, and the others if they matter.
    Some(List, Option<List>),
}

/// Some agents of a block by their places in it, in order.
pub(super) struct List {
    lanes: Rows<u16>,
    length: usize,
}

impl Deref for List {
    type Target = [u16];

    #[inline]
    fn deref(&self) -> &[u16] {
        &self.lanes[..self.length]
    }
}

impl Pool<u16> {
    /// Divides agents into those for whom something is so and the others. It is asked by the number
    /// in the list and the place in the block.
    #[inline]
    pub(super) fn divide(
        &mut self,
        list: &[u16],
        is_so: impl Fn(usize, usize) -> bool,
    ) -> (List, List) {
        let (mut yes, mut no) = (self.take(), self.take());
        let mut yeses = 0;
        for (number, lane) in list.iter().enumerate() {
            // Who is one of them cannot be foreseen, so there is no branch that depends on it.
            yes[yeses % BLOCK] = *lane;
            no[(number - yeses) % BLOCK] = *lane;
            yeses += usize::from(is_so(number, place(*lane)));
        }
        (List { lanes: yes, length: yeses }, List { lanes: no, length: list.len() - yeses })
    }

    /// Those agents for whom something is so, where the others are of no interest.
    #[inline]
    pub(super) fn select(&mut self, list: &[u16], is_so: impl Fn(usize, usize) -> bool) -> List {
        let mut yes = self.take();
        let mut yeses = 0;
        for (number, lane) in list.iter().enumerate() {
            yes[yeses % BLOCK] = *lane;
            yeses += usize::from(is_so(number, place(*lane)));
        }
        List { lanes: yes, length: yeses }
    }

    /// Those agents for whom something is so and, unless they are of no interest, the others.
    #[inline]
    pub(super) fn part(
        &mut self,
        list: &[u16],
        is_last: bool,
        is_so: impl Fn(usize, usize) -> bool,
    ) -> Divided {
        if is_last {
            return Divided::Some(self.select(list, is_so), None);
        }
        let (yes, no) = self.divide(list, is_so);
        Divided::Some(yes, Some(no))
    }

    /// Takes a list back.
    #[inline]
    pub(super) fn give_list(&mut self, list: List) {
        self.give(list.lanes);
    }
}

/// A place in a block. All of them are below its size, which the compiler gets to see here.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it is nothing but a mask")]
pub(super) fn place(lane: u16) -> usize {
    usize::from(lane) % BLOCK
}
