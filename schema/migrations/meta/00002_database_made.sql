-- +goose Up
-- Every database of the installation that was made, this one too (cluster '', number 0).
-- One that is listed here and isn't on its server is lost: nobody makes it again, empty,
-- by mistake.
CREATE TABLE IF NOT EXISTS database_made (
  cluster VARCHAR(8) NOT NULL,
  number  INT NOT NULL,
  server  VARCHAR(32) NOT NULL COMMENT 'its name in the map',
  made_at DATETIME(3) NOT NULL,
  PRIMARY KEY (cluster, number)
) ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;
