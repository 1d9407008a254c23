-- +goose Up
-- Who owns a name until when. Times are ms since 1970 of this database's clock.
CREATE TABLE IF NOT EXISTS lease (
  name     VARCHAR(64) NOT NULL PRIMARY KEY,
  holder   VARCHAR(128) NOT NULL,
  token    BIGINT NOT NULL COMMENT 'counts the holders of the name',
  until_ms BIGINT NOT NULL
) ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

-- Every shard map that was ever in force; the highest epoch is.
CREATE TABLE IF NOT EXISTS shard_map (
  epoch BIGINT NOT NULL PRIMARY KEY,
  hash  CHAR(64) NOT NULL,
  text  MEDIUMTEXT NOT NULL
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
