//! Tests of reading and changing the world.

use super::*;

#[test]
fn agents_read_the_world_as_of_the_start_of_the_tick() {
    let chart = chart(
        "name: queue\nstates: [out, inside]\ninitial: out\nworld: {guests: 0, last: none}\n\
         transitions:\n  - trigger: enter\n    source: out\n    target: inside\n    \
         guard: world.guests < 3\n    action: [add world.guests = 1, set world.last = 'in']\n",
    );
    let pool = pool(1);
    let mut kernel = population(&chart, ("enter", 1.0), 5);
    let guests = chart.world("guests").unwrap();
    kernel.ticks(1, 5, &pool);
    assert_eq!(kernel.counts(), [0, 5], "all came in at once: none saw another come");
    assert_eq!(kernel.world(guests), Some(&ScalarValue::Number(5.0)));
    assert_eq!(kernel.world(chart.world("last").unwrap()), Some(&ScalarValue::text("in")));
    let late = add(&mut kernel, 9, 0, &[]).unwrap();
    kernel.ticks(6, 5, &pool);
    assert_eq!(kernel.state(late), chart.initial(), "it is full");
    kernel.set_world(guests, ScalarValue::Number(0.0));
    kernel.ticks(11, 1, &pool);
    assert_ne!(kernel.state(late), chart.initial());
}

/// Floating-point sums depend on the order of additions and assignments.
#[test]
fn world_changes_apply_by_tick_and_agent_in_any_batch() {
    let chart = chart(
        "name: shop\nstates: [out, inside]\ninitial: out\nfields: {bid: 0.1}\n\
         world: {price: 3, turnover: 0, last: 0}\ntransitions:\n  \
         - {trigger: go, source: out, target: inside, guard: draw() < 0.6, action: \
           [set agent.bid = draw() / world.price, add world.turnover = agent.bid]}\n  \
         - {trigger: go, source: inside, target: out, action: \
           [set world.last = agent.bid, add world.last = 1]}\n  \
         - {trigger: reset, source: '*', target: out, action: set world.turnover = agent.bid}\n",
    );
    let rates = [("go", 0.2), ("reset", 0.0001)];
    let (turnover, last) = (chart.world("turnover").unwrap(), chart.world("last").unwrap());
    let mut ends = Vec::new();
    for (threads, piece) in [(1, 1), (1, 90), (2, 90), (2, 17)] {
        let pool = pool(threads);
        let mut kernel =
            Kernel::new(Arc::clone(&chart), super::rates(&chart, &rates), SimulationSeed(8));
        fill(&mut kernel, 9000);
        let mut worlds = Vec::new();
        for first in (1..=90).step_by(piece) {
            kernel.ticks(first, u32::try_from(piece).unwrap().min(91 - first), &pool);
            worlds.push((kernel.world(turnover).cloned(), kernel.world(last).cloned()));
        }
        assert!(piece < 90 || kernel.batching.ticks() > 1, "some ticks are run at once");
        ends.push((snapshots(&kernel), worlds.pop()));
    }
    assert!(ends.windows(2).all(|pair| pair[0] == pair[1]));
}
