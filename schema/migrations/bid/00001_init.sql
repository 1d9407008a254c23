-- +goose Up
-- The mirror: a copy of every row by bid, table = bid % 10. The primary keys are the
-- only unique keys: a copy must accept whatever the truth holds.
CREATE TABLE IF NOT EXISTS order_0 (
  id                 BIGINT NOT NULL,
  uid                BIGINT NOT NULL,
  bid                BIGINT NOT NULL,
  out_trade_no       VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  amount             BIGINT NOT NULL,
  currency           CHAR(3)      CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  subject            VARCHAR(256) NOT NULL,
  metadata           TEXT NOT NULL,
  status             ENUM('created','paid','partially_refunded','refunded','closed') CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  ver                BIGINT NOT NULL,
  paid_amount        BIGINT NOT NULL,
  refunded_amount    BIGINT NOT NULL,
  channel            VARCHAR(32)  CHARACTER SET ascii COLLATE ascii_bin NULL,
  channel_trade_no   VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NULL,
  unapplied_payments BIGINT NOT NULL,
  close_reason       ENUM('merchant','buyer','expired') CHARACTER SET ascii COLLATE ascii_bin NULL,
  created_by         VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  request_id         VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  expires_at         DATETIME(3) NOT NULL,
  updated_at         DATETIME(3) NOT NULL,
  paid_at            DATETIME(3) NULL,
  closed_at          DATETIME(3) NULL,
  PRIMARY KEY (id),
  KEY merchant (bid, id),
  KEY merchant_status (bid, status, id),
  KEY merchant_number (bid, out_trade_no, id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
CREATE TABLE IF NOT EXISTS order_1 LIKE order_0;
CREATE TABLE IF NOT EXISTS order_2 LIKE order_0;
CREATE TABLE IF NOT EXISTS order_3 LIKE order_0;
CREATE TABLE IF NOT EXISTS order_4 LIKE order_0;
CREATE TABLE IF NOT EXISTS order_5 LIKE order_0;
CREATE TABLE IF NOT EXISTS order_6 LIKE order_0;
CREATE TABLE IF NOT EXISTS order_7 LIKE order_0;
CREATE TABLE IF NOT EXISTS order_8 LIKE order_0;
CREATE TABLE IF NOT EXISTS order_9 LIKE order_0;

CREATE TABLE IF NOT EXISTS journal_0 (
  order_id    BIGINT NOT NULL,
  seq         BIGINT NOT NULL,
  uid         BIGINT NOT NULL,
  bid         BIGINT NOT NULL,
  op          VARCHAR(160) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  kind        ENUM('paid','closed','refunded','refund_succeeded','refund_failed','unapplied_payment','unapplied_refunded','unapplied_voided') CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  amount      BIGINT NOT NULL,
  currency    CHAR(3)      CHARACTER SET ascii COLLATE ascii_bin NULL,
  from_status ENUM('created','paid','partially_refunded','refunded','closed') CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  to_status   ENUM('created','paid','partially_refunded','refunded','closed') CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  ref         VARCHAR(160) CHARACTER SET ascii COLLATE ascii_bin NULL,
  reason      VARCHAR(256) NULL,
  actor       VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  key_id      VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NULL,
  request_id  VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  recorded_at DATETIME(3) NOT NULL,
  PRIMARY KEY (order_id, seq),
  KEY merchant (bid, recorded_at, order_id, seq)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
CREATE TABLE IF NOT EXISTS journal_1 LIKE journal_0;
CREATE TABLE IF NOT EXISTS journal_2 LIKE journal_0;
CREATE TABLE IF NOT EXISTS journal_3 LIKE journal_0;
CREATE TABLE IF NOT EXISTS journal_4 LIKE journal_0;
CREATE TABLE IF NOT EXISTS journal_5 LIKE journal_0;
CREATE TABLE IF NOT EXISTS journal_6 LIKE journal_0;
CREATE TABLE IF NOT EXISTS journal_7 LIKE journal_0;
CREATE TABLE IF NOT EXISTS journal_8 LIKE journal_0;
CREATE TABLE IF NOT EXISTS journal_9 LIKE journal_0;

-- How far the stream is applied here. The row moves in the transaction of the rows.
-- The incarnation is the stream's name and creation time; '' is none yet.
CREATE TABLE IF NOT EXISTS progress (
  id          TINYINT NOT NULL PRIMARY KEY CHECK (id = 1),
  incarnation VARCHAR(128) NOT NULL,
  stream_seq  BIGINT UNSIGNED NOT NULL,
  stored_at   BIGINT NOT NULL DEFAULT 0 COMMENT 'when NATS stored that message, ns since 1970; another time: another message'
) ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;
INSERT INTO progress (id, incarnation, stream_seq) VALUES (1, '', 0) ON DUPLICATE KEY UPDATE id = id;

-- The newest mark of each uid server that is applied here.
CREATE TABLE IF NOT EXISTS mark (
  server VARCHAR(64) NOT NULL PRIMARY KEY,
  gtid   VARCHAR(512) NOT NULL,
  at     DATETIME(3) NOT NULL
) ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

-- What could not be applied. While a row is open, the marks stand still.
CREATE TABLE IF NOT EXISTS dead_letter (
  incarnation VARCHAR(128) NOT NULL,
  stream_seq  BIGINT UNSIGNED NOT NULL,
  item        INT NOT NULL COMMENT 'index of the row in its message, -1 for the whole message',
  subject     VARCHAR(128) NOT NULL,
  reason      VARCHAR(256) NOT NULL,
  payload     LONGBLOB NOT NULL,
  state       ENUM('open','retried','dropped') NOT NULL DEFAULT 'open',
  found_at    DATETIME(3) NOT NULL,
  settled_at  DATETIME(3) NULL,
  PRIMARY KEY (incarnation, stream_seq, item),
  KEY by_state (state)
) ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

-- Which database this is, and the epoch of the map that it obeys.
CREATE TABLE IF NOT EXISTS owner (
  id         TINYINT NOT NULL PRIMARY KEY CHECK (id = 1),
  cluster    VARCHAR(8) NOT NULL,
  `database` INT NOT NULL,
  epoch      BIGINT NOT NULL
) ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;
