//! Every implementation passes the conformance suite of its trait.

mod memory {
    use std::sync::Arc;

    use polity_store::{MemoryStore, Store};

    polity_testkit::store_conformance!((Arc::new(MemoryStore::new()) as Arc<dyn Store>, ()));
}

mod sqlite {
    use std::sync::Arc;

    use polity_store::{CommitDurability, SqliteStore, Store, StoreAccess};

    fn make() -> (Arc<dyn Store>, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("polity.db");
        let store =
            SqliteStore::open(&path, StoreAccess::ReadWrite(CommitDurability::Full)).unwrap();
        (Arc::new(store), folder)
    }

    polity_testkit::store_conformance!(make());
}

mod leases {
    use polity_store::{FileLeases, FileSlotPools, MemoryLeases, MemorySlotPools};
    use polity_testkit::lease_conformance::{check_leases, check_slot_pools};

    #[test]
    fn file_leases_conform() {
        let folder = tempfile::tempdir().unwrap();
        check_leases(&FileLeases::new(folder.path().join("instances")));
    }

    #[test]
    fn memory_leases_conform() {
        check_leases(&MemoryLeases::default());
    }

    #[test]
    fn file_slot_pools_conform() {
        let folder = tempfile::tempdir().unwrap();
        let pools = || FileSlotPools::new(folder.path());
        check_slot_pools(&pools(), &pools());
    }

    #[test]
    fn memory_slot_pools_conform() {
        let pools = MemorySlotPools::default();
        check_slot_pools(&pools, &pools.clone());
    }
}
