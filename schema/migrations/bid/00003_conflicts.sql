-- +goose Up
-- What was stamped since, for whoever follows the mirror: the scan for conflicts.
ALTER TABLE order_0 ADD KEY IF NOT EXISTS changed (updated_at, id);
ALTER TABLE order_1 ADD KEY IF NOT EXISTS changed (updated_at, id);
ALTER TABLE order_2 ADD KEY IF NOT EXISTS changed (updated_at, id);
ALTER TABLE order_3 ADD KEY IF NOT EXISTS changed (updated_at, id);
ALTER TABLE order_4 ADD KEY IF NOT EXISTS changed (updated_at, id);
ALTER TABLE order_5 ADD KEY IF NOT EXISTS changed (updated_at, id);
ALTER TABLE order_6 ADD KEY IF NOT EXISTS changed (updated_at, id);
ALTER TABLE order_7 ADD KEY IF NOT EXISTS changed (updated_at, id);
ALTER TABLE order_8 ADD KEY IF NOT EXISTS changed (updated_at, id);
ALTER TABLE order_9 ADD KEY IF NOT EXISTS changed (updated_at, id);

-- How far that scan has come in the tables here: all that is behind the place of a table
-- is still to be looked at. A place never goes back.
CREATE TABLE IF NOT EXISTS conflict_scan (
  number   TINYINT NOT NULL COMMENT 'of the table, 0 to 9',
  what     ENUM('order','journal') CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  at       DATETIME(3) NOT NULL COMMENT 'updated_at or recorded_at',
  order_id BIGINT NOT NULL,
  seq      BIGINT NOT NULL COMMENT '0 in orders',
  PRIMARY KEY (number, what)
) ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

-- The first order that a payment was seen with, applied or not. Of all databases eight have
-- rows: that of the CRC-32 of ref, modulo 8, and 1.
CREATE TABLE IF NOT EXISTS payment_reference (
  ref      VARCHAR(160) NOT NULL PRIMARY KEY COMMENT 'channel:number, as in the journal',
  order_id BIGINT NOT NULL,
  seq      BIGINT NOT NULL,
  uid      BIGINT NOT NULL,
  bid      BIGINT NOT NULL
) ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;
