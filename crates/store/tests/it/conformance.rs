//! Both stores pass the same suite.

mod memory {
    use std::sync::Arc;

    use polity_store::{MemoryStore, Store};

    polity_testkit::store_conformance!((Arc::new(MemoryStore::new()) as Arc<dyn Store>, ()));
}

mod sqlite {
    use std::sync::Arc;

    use polity_store::{Access, Durability, SqliteStore, Store};

    fn make() -> (Arc<dyn Store>, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("polity.db");
        let store = SqliteStore::open(&path, Access::ReadWrite(Durability::Full)).unwrap();
        (Arc::new(store), folder)
    }

    polity_testkit::store_conformance!(make());
}
