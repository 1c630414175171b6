//! SQLite: a database that locks, syncs, truncates, maps memory and renames.

use crate::test_dir::TestDir;

const STATEMENTS: &str = "
    CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v TEXT);
    BEGIN; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
      INSERT INTO t(v) SELECT printf('value %d', i * i) FROM n; COMMIT;
    DELETE FROM t WHERE id % 3 = 0; CREATE INDEX IF NOT EXISTS by_v ON t(v);
    BEGIN; UPDATE t SET v = 'gone'; ROLLBACK;
    UPDATE t SET v = v || '!' WHERE id % 100 = 1; VACUUM; PRAGMA integrity_check; SELECT count(*), sum(id) FROM t;";

fn assert_database_works(seed: &str, journal: &str) {
    let test_dir = TestDir::new(seed);
    let script = format!(
        "sqlite3 db 'PRAGMA journal_mode={journal};' \"{STATEMENTS}\" > said
         sqlite3 db 'INSERT INTO t(v) VALUES (\"later\"); SELECT count(*) FROM t;' >> said"
    );
    test_dir.assert_same_as_native(&script);
    let check = test_dir.native("sqlite3 db 'PRAGMA integrity_check;'");
    check.assert_code(0);
    assert_eq!(check.out, "ok\n");
    let said = String::from_utf8(test_dir.content("said")).expect("text");
    assert!(said.starts_with(journal), "the journal mode was not taken: {said}");
}

#[test]
fn sqlite_works_with_a_rollback_journal() {
    assert_database_works("", "delete");
}

#[test]
fn sqlite_changes_an_old_database_with_a_rollback_journal() {
    let seed = "sqlite3 db 'CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT);' 'INSERT INTO t(v) VALUES (1), (2), (3);'";
    assert_database_works(seed, "truncate");
}

#[test]
fn sqlite_works_with_a_write_ahead_log() {
    assert_database_works("", "wal");
}

#[test]
fn sqlite_serves_two_processes_at_once() {
    let test_dir = TestDir::new("");
    test_dir.assert_same_as_native(
        "sqlite3 db 'PRAGMA journal_mode=wal;' 'CREATE TABLE t(v);' > said
         for p in 1 2; do (for i in $(seq 20); do sqlite3 -cmd '.timeout 20000' db 'INSERT INTO t VALUES (1);'; done) & done
         wait; sqlite3 db 'SELECT count(*) FROM t; PRAGMA wal_checkpoint(TRUNCATE);' >> said",
    );
    let count = test_dir.native("sqlite3 db 'SELECT count(*) FROM t;'");
    assert_eq!(count.out, "40\n");
}
