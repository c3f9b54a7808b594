//! A terminal window as SVG.

use std::fmt::Write;

use super::screen::{CellStyle, StyledSpan};

const FONT_PX: f64 = 14.0;
const CHARACTER_PX: f64 = 8.43;
const LINE_PX: f64 = 20.0;
const MARGIN_PX: f64 = 20.0;
const TITLE_BAR_PX: f64 = 36.0;

/// Draws lines of `columns` characters in a window.
pub(super) fn draw(lines: &[Vec<StyledSpan>], columns: usize) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a screen has few lines and columns")]
    let (columns, rows) = (columns as f64, lines.len() as f64);
    let width = (columns * CHARACTER_PX + 2.0 * MARGIN_PX).round();
    let height = (rows * LINE_PX + TITLE_BAR_PX + MARGIN_PX).round();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" aria-labelledby=\"title\">\n\
         <title id=\"title\">A workflow waits for a review in the terminal, is approved and \
         completes</title>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"10\" fill=\"#161b22\"/>\n"
    );
    for (at, colour) in [(20, "#ff5f57"), (40, "#febc2e"), (60, "#28c840")] {
        // Writing to a String cannot fail.
        let _ = writeln!(svg, "<circle cx=\"{at}\" cy=\"18\" r=\"6\" fill=\"{colour}\"/>");
    }
    let _ = writeln!(
        svg,
        "<g font-family=\"ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace\" \
         font-size=\"{FONT_PX}\" fill=\"#d7dde4\" xml:space=\"preserve\">"
    );
    let mut baseline = TITLE_BAR_PX + FONT_PX;
    for line in lines {
        draw_line(&mut svg, line, baseline);
        baseline += LINE_PX;
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

/// Draws one line. Each span has its own position, so that fonts of other widths keep the columns.
fn draw_line(svg: &mut String, line: &[StyledSpan], baseline: f64) {
    let mut column = 0_u32;
    for StyledSpan { text, style } in line {
        let x = MARGIN_PX + f64::from(column) * CHARACTER_PX;
        let length = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
        let text_length = f64::from(length) * CHARACTER_PX;
        if !text.trim().is_empty() {
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{baseline:.0}\" textLength=\"{text_length:.1}\"{}>{}</text>",
                attributes(*style),
                escape(text)
            );
        }
        column = column.saturating_add(length);
    }
}

fn attributes(style: CellStyle) -> String {
    let mut attributes = String::new();
    if style.bold {
        attributes.push_str(" font-weight=\"bold\"");
    }
    let colour = match style.colour {
        Some(31) => Some("#ff7b72"),
        Some(32) => Some("#56d364"),
        Some(33) => Some("#e3b341"),
        Some(36) => Some("#76e3ea"),
        Some(_) => Some("#a5d6ff"),
        None if style.dim => Some("#8b949e"),
        None => None,
    };
    if let Some(colour) = colour {
        let _ = write!(attributes, " fill=\"{colour}\"");
    }
    attributes
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
