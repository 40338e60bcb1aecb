-- One row about the whole file.
CREATE TABLE store (
  only INTEGER PRIMARY KEY CHECK (only = 1),
  id TEXT NOT NULL,             -- random; another one means that acknowledged writes may be gone
  revision INTEGER NOT NULL,    -- the last version that was given to a record; none is given twice
  forgotten INTEGER NOT NULL    -- removals up to this version are no longer remembered
);

CREATE TABLE records (
  namespace TEXT NOT NULL,
  key TEXT NOT NULL,
  version INTEGER NOT NULL,
  value,                        -- text, or a blob if it is not UTF-8; null remembers a removal for the watches
  PRIMARY KEY (namespace, key)
) WITHOUT ROWID;
CREATE INDEX records_by_version ON records (namespace, version);
CREATE INDEX removals ON records (version) WHERE value IS NULL;

-- For people: sqlite3 x.db 'select * from live'
CREATE VIEW live AS SELECT namespace, key, version, value FROM records WHERE value IS NOT NULL;

-- Registered keys: what nodes show to other programs, kept alive by leases on this machine's boot clock.
CREATE TABLE leases (
  namespace TEXT NOT NULL,
  lease TEXT NOT NULL,
  ttl_ms INTEGER NOT NULL,
  boot TEXT NOT NULL,           -- the boot that expires_ms counts from; in any other it has expired
  expires_ms INTEGER NOT NULL,
  PRIMARY KEY (namespace, lease)
) WITHOUT ROWID;
CREATE TABLE keys (
  namespace TEXT NOT NULL,
  key TEXT NOT NULL,
  lease TEXT NOT NULL,
  value BLOB NOT NULL,
  PRIMARY KEY (namespace, key)
) WITHOUT ROWID;
CREATE INDEX keys_by_lease ON keys (namespace, lease);
