//! Drawings: the format follows from `?format` or the header `Accept`.

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use polity_definition::WorkflowDefinition;
use polity_diagram::{GraphFormat, NodeMarks, draw_workflow};
use schemars::JsonSchema;
use serde::Deserialize;

/// A format of drawings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(in crate::api) enum DrawingFormat {
    /// A picture.
    Svg,
    /// The text form of Mermaid.
    Mermaid,
    /// The text form of Graphviz.
    Dot,
}

impl DrawingFormat {
    const ALL: [Self; 3] = [Self::Svg, Self::Mermaid, Self::Dot];

    /// The media type.
    pub(in crate::api) const fn media_type(self) -> &'static str {
        match self {
            Self::Svg => "image/svg+xml",
            Self::Mermaid => "text/vnd.mermaid; charset=utf-8",
            Self::Dot => "text/vnd.graphviz; charset=utf-8",
        }
    }
}

/// The query of a drawing.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct GraphQuery {
    /// The format. By default the first one that the header `Accept` lists, else `svg`.
    format: Option<DrawingFormat>,
}

impl GraphQuery {
    /// The format of the answer.
    pub(in crate::api) fn format(&self, headers: &HeaderMap) -> DrawingFormat {
        self.format.or_else(|| accepted(headers)).unwrap_or(DrawingFormat::Svg)
    }
}

/// The first format that a client accepts.
fn accepted(headers: &HeaderMap) -> Option<DrawingFormat> {
    let listed = headers.get(header::ACCEPT)?.to_str().ok()?;
    listed.split(',').find_map(|kind| {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        DrawingFormat::ALL.into_iter().find(|format| {
            format.media_type().split(';').next().is_some_and(|own| own.eq_ignore_ascii_case(kind))
        })
    })
}

/// Answers with a drawing of a workflow.
pub(in crate::api) fn draw(
    workflow: &WorkflowDefinition,
    format: DrawingFormat,
    marks: &NodeMarks,
) -> Response {
    let graph_format = match format {
        DrawingFormat::Svg => GraphFormat::Svg,
        DrawingFormat::Mermaid => GraphFormat::Mermaid,
        DrawingFormat::Dot => GraphFormat::Dot,
    };
    answer_text(draw_workflow(workflow, graph_format, marks), format.media_type())
}

/// Answers with text of a media type.
pub(in crate::api) fn answer_text(text: String, media_type: &'static str) -> Response {
    let mut response = text.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_follows_from_the_query_then_from_accept() {
        let headers = |accept: &'static str| {
            HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))])
        };
        let open = GraphQuery { format: None };
        for (accept, expected) in [
            ("text/vnd.mermaid", DrawingFormat::Mermaid),
            ("text/html, TEXT/VND.GRAPHVIZ;q=0.9", DrawingFormat::Dot),
            ("image/svg+xml, text/vnd.mermaid", DrawingFormat::Svg),
            ("*/*", DrawingFormat::Svg),
            ("", DrawingFormat::Svg),
        ] {
            assert_eq!(open.format(&headers(accept)), expected, "{accept}");
        }
        let asked = GraphQuery { format: Some(DrawingFormat::Dot) };
        assert_eq!(asked.format(&headers("text/vnd.mermaid")), DrawingFormat::Dot);
    }
}
