//! Terminal output as lines of styled text.

/// The style of a run of characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct CellStyle {
    pub(super) bold: bool,
    pub(super) dim: bool,
    /// The colour by its SGR number, 31 to 36.
    pub(super) colour: Option<u8>,
}

/// Characters of one style.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StyledSpan {
    pub(super) text: String,
    pub(super) style: CellStyle,
}

/// Lays output out as lines of at most `columns` characters; longer lines continue below.
pub(super) fn lay_out(output: &str, columns: usize) -> Vec<Vec<StyledSpan>> {
    let mut style = CellStyle::default();
    let mut lines = Vec::new();
    for line in output.lines() {
        let mut spans: Vec<StyledSpan> = Vec::new();
        let mut column = 0;
        let mut characters = line.chars();
        while let Some(character) = characters.next() {
            if character == '\x1b' {
                let code: String = characters.by_ref().take_while(|c| *c != 'm').collect();
                apply(&mut style, code.trim_start_matches('['));
                continue;
            }
            if column == columns {
                lines.push(std::mem::take(&mut spans));
                column = 0;
            }
            column += 1;
            match spans.last_mut() {
                Some(span) if span.style == style => span.text.push(character),
                Some(_) | None => spans.push(StyledSpan { text: character.into(), style }),
            }
        }
        lines.push(spans);
    }
    lines
}

/// Applies one SGR sequence.
fn apply(style: &mut CellStyle, codes: &str) {
    for code in codes.split(';') {
        match code.parse() {
            Ok(1) => style.bold = true,
            Ok(2) => style.dim = true,
            Ok(colour @ 31..=36) => style.colour = Some(colour),
            Ok(_) | Err(_) => *style = CellStyle::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_end_where_they_are_reset_and_long_lines_continue_below() {
        let lines = lay_out("\x1b[32mok\x1b[0m done", 4);
        let green = CellStyle { colour: Some(32), ..CellStyle::default() };
        let span = |text: &str, style| StyledSpan { text: text.into(), style };
        assert_eq!(
            lines,
            [
                vec![span("ok", green), span(" d", CellStyle::default())],
                vec![span("one", CellStyle::default())],
            ]
        );
    }
}
