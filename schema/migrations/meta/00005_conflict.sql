-- +goose Up
-- What two orders share and must not: a merchant's out_trade_no, or a channel's payment.
CREATE TABLE IF NOT EXISTS conflict (
  id       BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  kind     ENUM('out_trade_no','channel_trade_no') NOT NULL,
  bid      BIGINT NOT NULL COMMENT 'of an out_trade_no; 0 for a payment, which orders of several may share',
  number   VARCHAR(160) NOT NULL COMMENT 'out_trade_no, or channel:number',
  orders   INT NOT NULL COMMENT 'rows of conflict_order, at most 100',
  found_at DATETIME(3) NOT NULL COMMENT 'UTC, by this database''s clock',
  UNIQUE KEY what (kind, bid, number),
  KEY kinds (kind, id)
) ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

CREATE TABLE IF NOT EXISTS conflict_order (
  conflict_id BIGINT NOT NULL,
  order_id    BIGINT NOT NULL,
  uid         BIGINT NOT NULL,
  bid         BIGINT NOT NULL,
  seq         BIGINT NOT NULL COMMENT 'of the entry that recorded the payment; 0 for an out_trade_no',
  found_at    DATETIME(3) NOT NULL COMMENT 'UTC, by this database''s clock',
  PRIMARY KEY (conflict_id, order_id, uid)
) ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;
