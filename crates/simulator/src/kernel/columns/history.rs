//! The last transitions of agents.
//!
//! A tick writes one byte per agent: the arrival code of its transition, or 0. When there are many
//! such columns, the oldest are folded. Folding keeps the last transitions of each agent, newest
//! first, as one number each: the code, and the ticks since the next older one.
//!
//! An arrival code identifies a source and trigger of the state that was entered. So transitions
//! are decoded backwards from the agent's current state.

use multiversion::multiversion;

use crate::kernel::{BLOCK, LANES};

/// The maximum number of columns before the oldest are folded.
pub(crate) const COLUMNS_MAX: usize = 112;
/// The minimum number of columns before the oldest are folded.
const COLUMNS_MIN: usize = 24;
/// The target size of an agent's columns and folded transitions in bytes. More folded bytes mean
/// fewer columns.
const BYTES_AIM: usize = 116;
/// The share of columns folded at a time: one in four. The newer columns of an active agent hold
/// nearly all of its history, so little work is left.
const OLDER_SHARE: usize = 4;
/// The number of columns allocated at once.
const COLUMNS_STEP: usize = 16;

/// The ticks of the columns, shared by all agents.
#[derive(Debug, Clone)]
pub(crate) struct HistoryCalendar {
    /// The tick of each column.
    pub(crate) ticks: Vec<u32>,
    /// The tick from which folded transitions count back.
    folded: u32,
    columns: usize,
    depth: usize,
    /// The number of arrival codes.
    codes: u64,
}

impl HistoryCalendar {
    /// Creates a calendar for histories of this depth and codes from 1 to `greatest`.
    pub(crate) fn new(depth: usize, greatest: u8) -> Self {
        let codes = u64::from(greatest.max(1));
        Self { ticks: Vec::new(), folded: 0, columns: COLUMNS_MAX, depth, codes }
    }

    /// Starts after a tick, before anything is written.
    pub(crate) fn start_at(&mut self, tick: u32) {
        if self.ticks.is_empty() {
            self.folded = tick;
        }
    }

    /// Returns the number of columns that fit before folding.
    pub(crate) fn free_columns(&self) -> usize {
        self.columns.saturating_sub(self.ticks.len())
    }

    /// Returns the number of columns to fold, the oldest ones.
    fn older(&self) -> usize {
        self.ticks.len().div_ceil(OLDER_SHARE)
    }

    /// Advances after all blocks have folded. The agents now have this many folded bytes in total.
    pub(crate) fn advance(&mut self, agents: usize, folded_bytes: usize) {
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
pub(crate) struct HistoryColumns {
    columns: Vec<u8>,
    folded: Vec<u8>,
    /// The end of each agent's folded transitions; the next agent's begin there.
    ends: Vec<u32>,
}

impl HistoryColumns {
    pub(crate) fn new() -> Self {
        Self { columns: Vec::new(), folded: Vec::new(), ends: vec![0; BLOCK] }
    }

    /// Adds a column for the next tick.
    pub(crate) fn push(&mut self) -> &mut [u8] {
        let column = self.extend(1);
        self.column(column)
    }

    /// Adds columns for the next ticks. Returns the index of the first.
    pub(crate) fn extend(&mut self, columns: usize) -> usize {
        let length = self.columns.len();
        let wanted = length + columns * BLOCK;
        if self.columns.capacity() < wanted {
            // Doubles the capacity up to the maximum, so that columns move rarely.
            let capacity = (2 * length).min(COLUMNS_MAX * BLOCK).max(wanted);
            let steps = capacity.div_ceil(COLUMNS_STEP * BLOCK) * COLUMNS_STEP;
            self.columns.reserve_exact(steps * BLOCK - length);
        }
        self.columns.resize(wanted, 0);
        length / BLOCK
    }

    /// Fits the capacity to the expected number of columns.
    pub(crate) fn fit(&mut self, calendar: &HistoryCalendar) {
        let wanted = calendar.columns * BLOCK;
        self.columns.shrink_to(wanted);
        self.columns.reserve_exact(wanted.saturating_sub(self.columns.len()));
    }

    /// Returns the newest columns, oldest first.
    pub(crate) fn newest(&self, columns: usize) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.columns[self.columns.len() - columns * BLOCK..].chunks_exact(BLOCK)
    }

    #[inline]
    pub(crate) fn column(&mut self, column: usize) -> &mut [u8] {
        &mut self.columns[column * BLOCK..(column + 1) * BLOCK]
    }

    pub(crate) fn folded_bytes(&self) -> usize {
        self.folded.len()
    }

    /// Returns the memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.columns.capacity() + self.folded.capacity() + size_of_val(self.ends.as_slice())
    }

    fn folded_of(&self, index: usize) -> &[u8] {
        let begin = index.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.folded[begin..self.ends[index] as usize]
    }

    /// Returns the codes and ticks of an agent's last transitions, newest first.
    pub(crate) fn of(&self, index: usize, calendar: &HistoryCalendar) -> Vec<(u8, u32)> {
        let columns = self.columns.chunks_exact(BLOCK).zip(&calendar.ticks).rev();
        let recent = columns.map(|(column, tick)| (column[index], *tick));
        let recent = recent.filter(|(code, _)| *code != 0);
        recent
            .chain(FoldedEntries::new(self.folded_of(index), calendar))
            .take(calendar.depth)
            .collect()
    }

    /// Adds an agent after all others. Its transitions come newest first, and none is newer than
    /// the newest column.
    pub(crate) fn insert(
        &mut self,
        index: usize,
        entries: &[(u8, u32)],
        calendar: &HistoryCalendar,
    ) {
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
    pub(crate) fn fold(&mut self, agents: usize, calendar: &HistoryCalendar) {
        let older = calendar.older();
        let mut folded = Vec::with_capacity(self.folded.len() + agents * 4);
        let mut ends = vec![0; BLOCK];
        let mut fold = HistoryFold::new(calendar, older, &self.columns);
        for base in (0..agents).step_by(LANES) {
            fold.start_group(base);
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

/// The number of columns transposed at once.
const TRANSPOSE_COLUMNS: usize = 8;

/// Room for a transition of every column and one that is overwritten. A power of two makes the
/// bounds check cheap.
const ENTRIES: usize = (COLUMNS_MAX + 1).next_power_of_two();

/// The state of folding a group of agents.
struct HistoryFold<'c> {
    calendar: &'c HistoryCalendar,
    older: usize,
    columns: &'c [u8],
    base: usize,
    /// The older columns, transposed: the codes of an agent are adjacent, newest first.
    transposed: Vec<[u8; COLUMNS_MAX]>,
    /// The number of columns transposed so far. Most agents need few.
    transposed_columns: usize,
    /// The ticks between each column and the boundary, if all are below 128.
    earlier: Option<[u8; COLUMNS_MAX]>,
    /// The number of an agent's transitions in the newer columns.
    newer: [u8; LANES],
    entries: [[u8; 2]; ENTRIES],
}

impl<'c> HistoryFold<'c> {
    fn new(calendar: &'c HistoryCalendar, older: usize, columns: &'c [u8]) -> Self {
        let boundary = calendar.ticks[older - 1];
        let mut earlier = Some([0; COLUMNS_MAX]);
        for (index, tick) in calendar.ticks[..older].iter().rev().enumerate() {
            let ticks = u8::try_from(boundary.wrapping_sub(*tick)).ok();
            match (ticks.filter(|ticks| *ticks < 0x80), &mut earlier) {
                (Some(ticks), Some(earlier)) => earlier[index] = ticks,
                (Some(_) | None, _) => earlier = None,
            }
        }
        Self {
            calendar,
            older,
            columns,
            base: 0,
            transposed: vec![[0; COLUMNS_MAX]; LANES],
            transposed_columns: 0,
            earlier,
            newer: [0; LANES],
            entries: [[0; 2]; ENTRIES],
        }
    }

    fn start_group(&mut self, base: usize) {
        self.base = base;
        self.transposed_columns = 0;
        self.newer = [0; LANES];
        for column in self.older..self.calendar.ticks.len() {
            count_codes(self.lanes(column), &mut self.newer);
        }
    }

    fn lanes(&self, column: usize) -> &'c [u8; LANES] {
        let lanes = self.columns[column * BLOCK + self.base..].first_chunk::<LANES>();
        lanes.unwrap_or(&[0; LANES])
    }

    /// Transposes some more of the older columns.
    fn transpose_more(&mut self) {
        let first = self.transposed_columns;
        let columns: [&[u8; LANES]; TRANSPOSE_COLUMNS] = std::array::from_fn(|offset| {
            let column = self.older.checked_sub(first + offset + 1);
            column.map_or(&[0; LANES], |column| self.lanes(column))
        });
        for (lane, transposed) in self.transposed.iter_mut().enumerate() {
            let codes = columns.map(|column| column[lane]);
            transposed[first..first + TRANSPOSE_COLUMNS].copy_from_slice(&codes);
        }
        self.transposed_columns += TRANSPOSE_COLUMNS;
    }

    /// Appends the transitions of an agent that are kept.
    fn agent(&mut self, lane: usize, before: &[u8], folded: &mut Vec<u8>) {
        let wanted = self.calendar.depth.saturating_sub(usize::from(self.newer[lane]));
        if wanted == 0 {
            return;
        }
        let (found, last) = match self.earlier {
            Some(earlier) => self.fold_near(lane, wanted, &earlier, folded),
            None => self.fold_far(lane, wanted, folded),
        };
        let Some(others) = wanted.saturating_sub(found).checked_sub(1) else { return };
        let mut before = FoldedEntries::new(before, self.calendar);
        if let Some((code, tick)) = before.next() {
            self.calendar.put(folded, code, last.wrapping_sub(tick));
            // The distances between the remaining transitions stay the same.
            folded.extend_from_slice(first_numbers(before.bytes.as_slice(), others));
        }
    }

    /// Appends transitions from columns less than 128 ticks apart. Returns their number and the
    /// tick of the last one.
    fn fold_near(
        &mut self,
        lane: usize,
        wanted: usize,
        earlier: &[u8; COLUMNS_MAX],
        folded: &mut Vec<u8>,
    ) -> (usize, u32) {
        let (mut found, mut last) = (0, 0);
        for first in (0..self.older).step_by(TRANSPOSE_COLUMNS) {
            if first == self.transposed_columns {
                self.transpose_more();
            }
            let codes = &self.transposed[lane][first..first + TRANSPOSE_COLUMNS];
            // Branch-free, because codes are hard to predict.
            for (code, earlier) in codes.iter().zip(&earlier[first..first + TRANSPOSE_COLUMNS]) {
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

    /// Appends transitions from columns any number of ticks apart.
    fn fold_far(&mut self, lane: usize, wanted: usize, folded: &mut Vec<u8>) -> (usize, u32) {
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

#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn count_codes(column: &[u8; LANES], counts: &mut [u8; LANES]) {
    for lane in 0..LANES {
        counts[lane] += u8::from(column[lane] != 0);
    }
}

/// Returns the bytes of the first variable-length numbers.
fn first_numbers(bytes: &[u8], numbers: usize) -> &[u8] {
    let mut ends = (0..bytes.len()).filter(|index| bytes[*index] < 0x80);
    let Some(last) = numbers.checked_sub(1) else { return &[] };
    ends.nth(last).map_or(bytes, |end| &bytes[..=end])
}

/// Decodes folded transitions, newest first.
struct FoldedEntries<'b> {
    bytes: std::slice::Iter<'b, u8>,
    tick: u32,
    codes: u64,
}

impl<'b> FoldedEntries<'b> {
    fn new(bytes: &'b [u8], calendar: &HistoryCalendar) -> Self {
        Self { bytes: bytes.iter(), tick: calendar.folded, codes: calendar.codes }
    }
}

impl Iterator for FoldedEntries<'_> {
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

impl HistoryCalendar {
    /// Writes a code and its distance as one variable-length number. Most charts have few codes, so
    /// it is hardly longer than the distance alone.
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

/// A block's transitions fit into 32 bits.
fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
