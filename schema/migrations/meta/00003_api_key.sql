-- +goose Up
-- The keys of the API. Their texts are stored nowhere. Times are UTC, by this database's
-- clock.
CREATE TABLE IF NOT EXISTS api_key (
  id                  CHAR(12) NOT NULL PRIMARY KEY COMMENT 'as in the key; no secret',
  role                VARCHAR(16) NOT NULL COMMENT 'app, merchant, channel, ops',
  bid                 BIGINT NULL COMMENT 'of a merchant key alone',
  refunds             BOOLEAN NOT NULL COMMENT 'an app key may refund',
  hash                BINARY(32) NOT NULL COMMENT 'SHA-256 of the whole key',
  secret              VARBINARY(128) NULL COMMENT 'a channel key signs with it; encrypted',
  secret_before       VARBINARY(128) NULL COMMENT 'the one before it',
  secret_before_until DATETIME(3) NULL,
  note                VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  created_at          DATETIME(3) NOT NULL,
  created_by          VARCHAR(128) NOT NULL,
  revoked_at          DATETIME(3) NULL COMMENT 'refused from then on; may lie ahead'
) ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

-- Rises with every change of api_key, in the same transaction, which begins with it: so
-- changes come one after the other, and whoever saw a number saw all changes up to it.
CREATE TABLE IF NOT EXISTS api_key_version (
  id      TINYINT NOT NULL PRIMARY KEY COMMENT '1',
  version BIGINT NOT NULL
) ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;
INSERT IGNORE INTO api_key_version (id, version) VALUES (1, 0);

-- Who did what to which key. Rows are only added.
CREATE TABLE IF NOT EXISTS api_key_audit (
  id     BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  at     DATETIME(3) NOT NULL,
  key_id CHAR(12) NOT NULL,
  what   VARCHAR(32) NOT NULL COMMENT 'created, rotated, secret_rotated, revoked, resealed',
  detail VARCHAR(200) NOT NULL,
  who    VARCHAR(128) NOT NULL,
  INDEX key_id (key_id, id)
) ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;
