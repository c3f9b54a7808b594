//! `polity task diff`: compares two tasks.

use polity_engine::comparison::RunComparison;
use polity_host::TaskDiff;

use crate::app::AppContext;
use crate::args::DiffArgs;
use crate::error::CliResult;
use crate::view::comparison::comparison_text;

pub(crate) async fn diff(app: &AppContext, args: &DiffArgs) -> CliResult {
    let queries = app.queries()?;
    let (a, b) = (queries.find_task(&args.a).await?, queries.find_task(&args.b).await?);
    let (a, b) = (queries.comparison_run(a.id).await?, queries.comparison_run(b.id).await?);
    let comparison = RunComparison::of(&a, &b);
    let document = TaskDiff::new(&a, &b, comparison.clone());
    app.print(&document, || comparison_text(&a, &b, &comparison))
}
