//! The last transitions of agents.
//!
//! A tick writes one byte for each agent: the code of the way it took, or 0. Such columns are
//! written one after the other, which is as fast as memory gets. When there are many, the oldest
//! are folded: of each agent only what is among its last transitions is kept, with its newest
//! first, as one number: which code it is, and how many ticks earlier it was than the one after it.
//!
//! A code says which of the ways into a state was taken, so transitions are read back from the
//! state that an agent is in, one by one into the past.

use multiversion::multiversion;

use super::{BLOCK, LANES};

/// The most columns before the oldest of them are folded.
pub(super) const COLUMNS_MAX: usize = 112;
/// The least columns before the oldest of them are folded.
const COLUMNS_MIN: usize = 24;
/// What columns and folded transitions of an agent should come to, in bytes. The more the folded
/// ones are, the fewer columns there are.
const BYTES_AIM: usize = 116;
/// One in so many columns is folded at a time. The newer ones of a lively agent hold nearly all that
/// is remembered of it, so little is left to do.
const OLDER_SHARE: usize = 4;
/// How many columns are made room for at once.
const COLUMNS_STEP: usize = 16;

/// When columns were written, the same for all agents of a population.
#[derive(Debug, Clone)]
pub(super) struct Calendar {
    /// The tick of each column.
    pub(super) ticks: Vec<u32>,
    /// The tick that folded transitions count back from.
    folded: u32,
    columns: usize,
    depth: usize,
    /// How many codes there are.
    codes: u64,
}

impl Calendar {
    /// A calendar for histories of this depth, with codes from 1 up to a greatest one.
    pub(super) fn new(depth: usize, greatest: u8) -> Self {
        let codes = u64::from(greatest.max(1));
        Self { ticks: Vec::new(), folded: 0, columns: COLUMNS_MAX, depth, codes }
    }

    /// Begins after a tick, with nothing written yet.
    pub(super) fn begin_at(&mut self, tick: u32) {
        if self.ticks.is_empty() {
            self.folded = tick;
        }
    }

    /// How many more columns there can be before some must be folded.
    pub(super) fn room(&self) -> usize {
        self.columns.saturating_sub(self.ticks.len())
    }

    /// How many of the columns are to be folded, the oldest ones.
    fn older(&self) -> usize {
        self.ticks.len().div_ceil(OLDER_SHARE)
    }

    /// Goes on after all blocks have folded. So many agents now have so many folded bytes.
    pub(super) fn advance(&mut self, agents: usize, folded_bytes: usize) {
        let older = self.older();
        if older > 0 {
            self.folded = self.ticks[older - 1];
        }
        self.ticks.drain(..older);
        let average = folded_bytes.div_ceil(agents.max(1));
        self.columns = BYTES_AIM.saturating_sub(average).clamp(COLUMNS_MIN, COLUMNS_MAX);
    }
}

/// The last transitions of a block of agents.
#[derive(Debug, Clone)]
pub(super) struct History {
    columns: Vec<u8>,
    folded: Vec<u8>,
    /// Where the folded transitions of each agent end; the next one's begin there.
    ends: Vec<u32>,
}

impl History {
    pub(super) fn new() -> Self {
        Self { columns: Vec::new(), folded: Vec::new(), ends: vec![0; BLOCK] }
    }

    /// A new column, to be written by the tick.
    pub(super) fn push(&mut self) -> &mut [u8] {
        let column = self.extend(1);
        self.column(column)
    }

    /// So many new columns, to be written by ticks. Returns the number of the first.
    pub(super) fn extend(&mut self, columns: usize) -> usize {
        let length = self.columns.len();
        let wanted = length + columns * BLOCK;
        if self.columns.capacity() < wanted {
            // As many again, but no more than there will be: what is there is moved less often so.
            let room = (2 * length).min(COLUMNS_MAX * BLOCK).max(wanted);
            let steps = room.div_ceil(COLUMNS_STEP * BLOCK) * COLUMNS_STEP;
            self.columns.reserve_exact(steps * BLOCK - length);
        }
        self.columns.resize(wanted, 0);
        length / BLOCK
    }

    /// Has room for the columns that there will be, and no more.
    pub(super) fn fit(&mut self, calendar: &Calendar) {
        let wanted = calendar.columns * BLOCK;
        self.columns.shrink_to(wanted);
        self.columns.reserve_exact(wanted.saturating_sub(self.columns.len()));
    }

    /// The newest columns, the newest last.
    pub(super) fn newest(&self, columns: usize) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.columns[self.columns.len() - columns * BLOCK..].chunks_exact(BLOCK)
    }

    #[inline]
    pub(super) fn column(&mut self, column: usize) -> &mut [u8] {
        &mut self.columns[column * BLOCK..(column + 1) * BLOCK]
    }

    pub(super) fn folded_bytes(&self) -> usize {
        self.folded.len()
    }

    /// How many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        self.columns.capacity() + self.folded.capacity() + size_of_val(self.ends.as_slice())
    }

    fn folded_of(&self, index: usize) -> &[u8] {
        let begin = index.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.folded[begin..self.ends[index] as usize]
    }

    /// Codes and ticks of an agent's last transitions, the newest first.
    pub(super) fn of(&self, index: usize, calendar: &Calendar) -> Vec<(u8, u32)> {
        let columns = self.columns.chunks_exact(BLOCK).zip(&calendar.ticks).rev();
        let recent = columns.map(|(column, tick)| (column[index], *tick));
        let recent = recent.filter(|(code, _)| *code != 0);
        recent.chain(Folded::new(self.folded_of(index), calendar)).take(calendar.depth).collect()
    }

    /// Takes in an agent behind all others, with what is known of it. Transitions are given with the
    /// newest first, and none is newer than the newest column.
    pub(super) fn take_in(&mut self, index: usize, entries: &[(u8, u32)], calendar: &Calendar) {
        let mut open = entries.iter().peekable();
        if !entries.is_empty() {
            for (column, tick) in self.columns.chunks_exact_mut(BLOCK).zip(&calendar.ticks).rev() {
                let here = open.next_if(|(_, at)| at == tick);
                column[index] = here.map_or(0, |(code, _)| *code);
            }
        }
        let mut after = calendar.folded;
        for (code, tick) in open {
            calendar.put(&mut self.folded, *code, after.wrapping_sub(*tick));
            after = *tick;
        }
        self.ends[index] = count(self.folded.len());
    }

    /// Folds the oldest columns.
    pub(super) fn fold(&mut self, agents: usize, calendar: &Calendar) {
        let older = calendar.older();
        let mut folded = Vec::with_capacity(self.folded.len() + agents * 4);
        let mut ends = vec![0; BLOCK];
        let mut fold = Fold::new(calendar, older, &self.columns);
        for base in (0..agents).step_by(LANES) {
            fold.look_at(base);
            for lane in 0..LANES.min(agents - base) {
                fold.agent(lane, self.folded_of(base + lane), &mut folded);
                ends[base + lane] = count(folded.len());
            }
        }
        for end in &mut ends[agents..] {
            *end = count(folded.len());
        }
        folded.shrink_to_fit();
        self.folded = folded;
        self.ends = ends;
        self.columns.copy_within(older * BLOCK.., 0);
        self.columns.truncate(self.columns.len() - older * BLOCK);
    }
}

/// How many columns are turned at once.
const TURN: usize = 8;

/// Room for a transition of every column, and one more that is written over. A power of two is
/// quick to stay below.
const ENTRIES: usize = (COLUMNS_MAX + 1).next_power_of_two();

/// What folding needs for a few agents at a time.
struct Fold<'c> {
    calendar: &'c Calendar,
    older: usize,
    columns: &'c [u8],
    base: usize,
    /// The older columns, turned so that the codes of an agent stand together, the newest first.
    turned: Vec<[u8; COLUMNS_MAX]>,
    /// How many of them are turned already. Most agents need few.
    turned_columns: usize,
    /// How many ticks before the boundary each of them was written, if that is never many.
    earlier: Option<[u8; COLUMNS_MAX]>,
    /// How many transitions of an agent the newer columns have.
    newer: [u8; LANES],
    entries: [[u8; 2]; ENTRIES],
}

impl<'c> Fold<'c> {
    fn new(calendar: &'c Calendar, older: usize, columns: &'c [u8]) -> Self {
        let boundary = calendar.ticks[older - 1];
        let mut earlier = Some([0; COLUMNS_MAX]);
        for (place, tick) in calendar.ticks[..older].iter().rev().enumerate() {
            let ticks = u8::try_from(boundary.wrapping_sub(*tick)).ok();
            match (ticks.filter(|ticks| *ticks < 0x80), &mut earlier) {
                (Some(ticks), Some(earlier)) => earlier[place] = ticks,
                (Some(_) | None, _) => earlier = None,
            }
        }
        Self {
            calendar,
            older,
            columns,
            base: 0,
            turned: vec![[0; COLUMNS_MAX]; LANES],
            turned_columns: 0,
            earlier,
            newer: [0; LANES],
            entries: [[0; 2]; ENTRIES],
        }
    }

    fn look_at(&mut self, base: usize) {
        self.base = base;
        self.turned_columns = 0;
        self.newer = [0; LANES];
        for column in self.older..self.calendar.ticks.len() {
            count_codes(self.lanes(column), &mut self.newer);
        }
    }

    fn lanes(&self, column: usize) -> &'c [u8; LANES] {
        let lanes = self.columns[column * BLOCK + self.base..].first_chunk::<LANES>();
        lanes.unwrap_or(&[0; LANES])
    }

    /// Turns some more of the older columns.
    fn turn(&mut self) {
        let first = self.turned_columns;
        let columns: [&[u8; LANES]; TURN] = std::array::from_fn(|place| {
            let column = self.older.checked_sub(first + place + 1);
            column.map_or(&[0; LANES], |column| self.lanes(column))
        });
        for (lane, turned) in self.turned.iter_mut().enumerate() {
            let codes = columns.map(|column| column[lane]);
            turned[first..first + TURN].copy_from_slice(&codes);
        }
        self.turned_columns += TURN;
    }

    /// Adds what is to be kept of an agent's older transitions.
    fn agent(&mut self, lane: usize, before: &[u8], folded: &mut Vec<u8>) {
        let wanted = self.calendar.depth.saturating_sub(usize::from(self.newer[lane]));
        if wanted == 0 {
            return;
        }
        let (found, last) = match self.earlier {
            Some(earlier) => self.near(lane, wanted, &earlier, folded),
            None => self.far(lane, wanted, folded),
        };
        let Some(others) = wanted.saturating_sub(found).checked_sub(1) else { return };
        let mut before = Folded::new(before, self.calendar);
        if let Some((code, tick)) = before.next() {
            self.calendar.put(folded, code, last.wrapping_sub(tick));
            // How much earlier each was than the one after it has not changed for the others.
            folded.extend_from_slice(first_numbers(before.bytes.as_slice(), others));
        }
    }

    /// Adds transitions from columns that are less than 128 ticks apart. Says how many they are and
    /// the tick of the last one.
    fn near(
        &mut self,
        lane: usize,
        wanted: usize,
        earlier: &[u8; COLUMNS_MAX],
        folded: &mut Vec<u8>,
    ) -> (usize, u32) {
        let (mut found, mut last) = (0, 0);
        for first in (0..self.older).step_by(TURN) {
            if first == self.turned_columns {
                self.turn();
            }
            let codes = &self.turned[lane][first..first + TURN];
            // Whether a code is one cannot be foreseen, so there is no branch that depends on it.
            for (code, earlier) in codes.iter().zip(&earlier[first..first + TURN]) {
                self.entries[found % ENTRIES] = [*code, earlier.wrapping_sub(last)];
                let is_one = *code != 0;
                found += usize::from(is_one);
                last = if is_one { *earlier } else { last };
            }
            if found >= wanted {
                break;
            }
        }
        for [code, earlier] in &self.entries[..found.min(wanted)] {
            self.calendar.put(folded, *code, u32::from(*earlier));
        }
        (found, self.calendar.ticks[self.older - 1].wrapping_sub(u32::from(last)))
    }

    /// The same for columns that may be any number of ticks apart.
    fn far(&mut self, lane: usize, wanted: usize, folded: &mut Vec<u8>) -> (usize, u32) {
        let mut after = self.calendar.ticks[self.older - 1];
        let mut found = 0;
        for column in (0..self.older).rev() {
            let (code, tick) = (self.lanes(column)[lane], self.calendar.ticks[column]);
            if code != 0 && found < wanted {
                self.calendar.put(folded, code, after.wrapping_sub(tick));
                after = tick;
                found += 1;
            }
        }
        (found, after)
    }
}

/// Counts the codes in a column.
#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn count_codes(column: &[u8; LANES], counts: &mut [u8; LANES]) {
    for lane in 0..LANES {
        counts[lane] += u8::from(column[lane] != 0);
    }
}

/// So many numbers of those that are written seven bits at a time.
fn first_numbers(bytes: &[u8], numbers: usize) -> &[u8] {
    let mut ends = (0..bytes.len()).filter(|index| bytes[*index] < 0x80);
    let Some(last) = numbers.checked_sub(1) else { return &[] };
    ends.nth(last).map_or(bytes, |end| &bytes[..=end])
}

/// Reads folded transitions, the newest first.
struct Folded<'b> {
    bytes: std::slice::Iter<'b, u8>,
    tick: u32,
    codes: u64,
}

impl<'b> Folded<'b> {
    fn new(bytes: &'b [u8], calendar: &Calendar) -> Self {
        Self { bytes: bytes.iter(), tick: calendar.folded, codes: calendar.codes }
    }
}

impl Iterator for Folded<'_> {
    type Item = (u8, u32);

    fn next(&mut self) -> Option<Self::Item> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.bytes.next()?;
            number |= u64::from(byte & 0x7F) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        #[expect(clippy::cast_possible_truncation, reason = "both were as small when written")]
        let (code, earlier) = ((number % self.codes) as u8 + 1, (number / self.codes) as u32);
        self.tick = self.tick.wrapping_sub(earlier);
        Some((code, self.tick))
    }
}

impl Calendar {
    /// Writes a code and how much earlier it was as one number, seven bits at a time. Few charts have
    /// many codes, so it takes hardly more room than the ticks alone.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "seven bits are kept on purpose")]
    fn put(&self, bytes: &mut Vec<u8>, code: u8, earlier: u32) {
        let mut number = u64::from(earlier) * self.codes + u64::from(code) - 1;
        while number >= 0x80 {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
    }
}

/// A block's transitions are far fewer than 32 bits can count.
fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
