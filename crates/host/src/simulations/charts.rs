//! Charts as lists, documents and drawings show them.

use polity_diagram::{chart_diagram, chart_to_mermaid};
use polity_statechart::Chart;
use serde_json::{Value, json};

use super::LoadedChart;
use crate::report::ErrorReport;

/// The most arrows in a picture. More would be unreadable and slow to lay out.
const PICTURE_ARROWS_MAX: usize = 1500;

/// A format of chart drawings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChartDrawing {
    /// A picture.
    Svg,
    /// The text form of Mermaid.
    Mermaid,
    /// The text form of Graphviz.
    Dot,
    /// State Chart XML, which other statechart tools read.
    Scxml,
}

/// A chart of a list.
pub fn chart_summary(chart: &Chart) -> Value {
    json!({
        "name": chart.name(),
        "states": chart.states().len(),
        "transitions": chart.transitions().len(),
        "initial": chart.state_name(chart.initial()),
    })
}

/// The file of a chart with its defaults filled in.
pub fn chart_details(read: &LoadedChart) -> Value {
    let chart = &read.chart;
    let mut shown = read.document.clone();
    if let Value::Object(members) = &mut shown {
        let oracle_default = chart.oracle_default().map(|state| chart.state_name(state));
        for (name, value) in [
            ("fields", json!({})),
            ("world", json!({})),
            ("timeouts", json!([])),
            ("oracle_default", json!(oracle_default)),
            ("max_history_depth", json!(chart.max_history_depth())),
        ] {
            members.entry(name).or_insert(value);
        }
    }
    shown
}

/// Draws a chart.
pub fn draw_chart(chart: &Chart, format: ChartDrawing) -> Result<String, ErrorReport> {
    Ok(match format {
        ChartDrawing::Mermaid => chart_to_mermaid(chart),
        ChartDrawing::Scxml => chart.to_scxml(),
        ChartDrawing::Svg => {
            let drawn = chart_diagram(chart);
            let arrows = drawn.arrows.len();
            if arrows > PICTURE_ARROWS_MAX {
                let message = format!(
                    "the diagram would have {arrows} arrows; the limit picture_arrows is \
                     {PICTURE_ARROWS_MAX}"
                );
                return Err(ErrorReport::over_limit("limit_picture_arrows", message)
                    .hint("use --format mermaid, dot or scxml"));
            }
            drawn.to_svg()
        }
        ChartDrawing::Dot => chart_diagram(chart).to_dot(),
    })
}
