use super::*;

fn state(name: &str, notes: &[&str]) -> ChartDiagramState {
    let notes = notes.iter().map(|note| (*note).to_owned()).collect();
    ChartDiagramState { name: name.into(), notes, ..ChartDiagramState::default() }
}

fn arrow(from: usize, to: usize, parts: &[&str]) -> ChartDiagramArrow {
    let parts = parts.iter().map(|part| (*part).to_owned()).collect();
    ChartDiagramArrow { from, to, labels: vec![parts] }
}

fn lamp() -> ChartDiagram {
    ChartDiagram {
        name: "lamp".to_owned(),
        states: vec![state("off", &[]), state("on \"bright\"", &["has a bulb"])],
        arrows: vec![
            arrow(0, 1, &["press", "[agent.volts > 3 && x < \"a\"]"]),
            arrow(1, 0, &["press"]),
            arrow(1, 1, &["look"]),
        ],
        initial: 0,
    }
}

/// A composite state with two children, one of which is composite too.
fn reader() -> ChartDiagram {
    let inside =
        |name: &str, parent| ChartDiagramState { parent: Some(parent), ..state(name, &[]) };
    let engaging = ChartDiagramState {
        initial: Some(2),
        history: true,
        ..state("engaging", &["entry / add world.engaged = 1"])
    };
    let reply = ChartDiagramState { initial: Some(4), ..inside("reply", 1) };
    ChartDiagram {
        name: "reader".to_owned(),
        states: vec![
            state("idle", &[]),
            engaging,
            inside("like", 1),
            reply,
            inside("draft", 3),
            inside("sent", 3),
        ],
        arrows: vec![
            arrow(0, 1, &["sees"]),
            arrow(0, 5, &["quick"]),
            arrow(2, 3, &["thinks"]),
            arrow(4, 5, &["sends"]),
            arrow(5, 4, &["regrets"]),
            arrow(1, 2, &["likes"]),
            arrow(5, 1, &["again"]),
            arrow(1, 0, &["round_ends"]),
            arrow(4, 0, &["gives_up"]),
            arrow(1, 1, &["waits"]),
        ],
        initial: 0,
    }
}

#[test]
fn draws_states_and_arrows_as_svg() {
    for graph in [lamp(), reader()] {
        let svg = graph.to_svg();
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert_eq!(open_elements(&svg), 0, "every element is closed");
    }
    let svg = lamp().to_svg();
    for seen in ["Chart lamp", ">off<", "on _bright_", "has a bulb", "press", "look", "&lt;"] {
        assert!(svg.contains(seen), "{seen}\n{svg}");
    }
}

/// The number of unclosed elements.
fn open_elements(svg: &str) -> i32 {
    let tags = svg.split('<').skip(1);
    tags.map(|tag| match (tag.starts_with('/'), tag.split('>').next()) {
        (true, _) => -1,
        (false, Some(tag)) if tag.ends_with('/') => 0,
        (false, _) => 1,
    })
    .sum()
}

#[test]
fn draws_states_and_arrows_as_dot() {
    let dot = lamp().to_dot();
    assert!(dot.starts_with("digraph \"lamp\" {"), "{dot}");
    assert!(dot.contains("\"off\" -> \"on _bright_\""), "{dot}");
    assert!(dot.contains("label=\"off\""), "{dot}");
    assert!(dot.contains("\\\"a\\\""), "{dot}");
}

#[test]
fn draws_composite_states_as_frames() {
    insta::assert_snapshot!("states_inside_others_as_svg", reader().to_svg());
    insta::assert_snapshot!("states_inside_others_as_dot", reader().to_dot());
}

#[test]
fn wraps_long_labels() {
    let parts = ["compose_done", "[agent.pending_action == \"reply\" && agent.energy > 0.25]"];
    let word = "x".repeat(80);
    let mut graph = lamp();
    graph.arrows = vec![arrow(0, 1, &parts), arrow(1, 0, &[&word])];
    graph.arrows[0].labels.push(vec!["press".to_owned(), "/ pause".to_owned()]);
    let expected = [
        "compose_done",
        "[agent.pending_action == \"reply\" &&",
        "agent.energy > 0.25]",
        "press / pause",
    ];
    assert_eq!(lines(&graph.arrows[0]), expected);
    let long = lines(&graph.arrows[1]);
    assert_eq!((long.len(), long.concat()), (3, word));
    for drawn in [graph.to_svg(), graph.to_dot()] {
        assert!(!drawn.contains('…'), "{drawn}");
    }
}
