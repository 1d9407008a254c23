-- +goose Up
-- Every payment config that was ever set; the highest version is in force. Rows are only
-- added.
CREATE TABLE IF NOT EXISTS payment_config (
  version BIGINT NOT NULL PRIMARY KEY,
  hash    CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'SHA-256 of text',
  text    MEDIUMTEXT NOT NULL COMMENT 'canonical',
  set_by  VARCHAR(128) NOT NULL,
  set_at  DATETIME(3) NOT NULL COMMENT 'UTC, by this database''s clock'
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
