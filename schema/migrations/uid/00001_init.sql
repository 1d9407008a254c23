-- +goose Up
-- The truth: every order by uid, table = uid % 10.
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
  UNIQUE KEY place (uid, bid, out_trade_no),
  KEY buyer (uid, id),
  KEY expiry (status, expires_at),
  KEY changed (updated_at, id)
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
  UNIQUE KEY operation (order_id, op)
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

-- Which database this is, and the epoch of the map that it obeys.
CREATE TABLE IF NOT EXISTS owner (
  id         TINYINT NOT NULL PRIMARY KEY CHECK (id = 1),
  cluster    VARCHAR(8) NOT NULL,
  `database` INT NOT NULL,
  epoch      BIGINT NOT NULL
) ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin;
