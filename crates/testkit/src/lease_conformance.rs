//! The conformance suites of leases and slot pools.

use polity_store::{LeaseError, Leases, SlotPools};

use crate::task_fixtures::instance_id;

/// Checks the rules of leases. The store must have none yet.
pub fn check_leases(leases: &dyn Leases) {
    let (a, b) = (instance_id(1), instance_id(2));
    let is_alive = |instance| leases.is_alive(instance).wait().unwrap();
    assert!(!is_alive(a));
    assert_eq!(leases.live_instances().wait().unwrap(), []);

    let lease = leases.acquire(a).wait().unwrap();
    assert_eq!(lease.instance(), a);
    assert!(is_alive(a) && !is_alive(b));
    assert_eq!(leases.live_instances().wait().unwrap(), [a]);
    assert_eq!(lease.renew().wait(), Ok(()));
    assert_eq!(leases.acquire(a).wait().err(), Some(LeaseError::Held(a)), "a lease has one holder");
    leases.remove_ended().wait().unwrap();
    assert!(is_alive(a), "only ended leases are removed");

    let first_epoch = lease.epoch();
    drop(lease);
    assert!(!is_alive(a));
    let next = leases.acquire(a).wait().unwrap();
    assert!(next.epoch() >= first_epoch, "a later lease never has a lower epoch");
    let other = leases.acquire(b).wait().unwrap();
    let mut live = leases.live_instances().wait().unwrap();
    live.sort();
    assert_eq!(live, [a, b]);
    drop((next, other));
}

/// Checks the rules of slot pools, with two views of the same pools.
pub fn check_slot_pools(ours: &dyn SlotPools, theirs: &dyn SlotPools) {
    let take = |pools: &dyn SlotPools, pool: &str| pools.acquire(pool, 2).wait().unwrap();
    let first = take(ours, "pool").unwrap();
    let second = take(theirs, "pool").unwrap();
    assert!(take(ours, "pool").is_none(), "both slots are taken");
    assert!(take(theirs, "pool").is_none(), "both slots are taken");
    assert!(take(ours, "another pool").is_some(), "pools are independent");
    let clone = first.clone();
    drop(first);
    assert!(take(ours, "pool").is_none(), "a clone holds the slot");
    drop(clone);
    let third = take(theirs, "pool");
    assert!(third.is_some(), "the slot is free for every process");
    drop(second);
    assert!(take(ours, "pool").is_some());
}
