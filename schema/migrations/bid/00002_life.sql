-- +goose Up
-- What an entry says besides: when the channel says it was paid, and what the channel calls
-- a refund. The keys serve the lists of unapplied payments and refunds of one merchant and
-- of all, and the search for a payment that two orders claim.
ALTER TABLE journal_0
  ADD COLUMN IF NOT EXISTS paid_at DATETIME(3) NULL,
  ADD COLUMN IF NOT EXISTS channel_refund_no VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL,
  ADD KEY IF NOT EXISTS merchant_kind (bid, kind, order_id, seq),
  ADD KEY IF NOT EXISTS kinds (kind, order_id, seq),
  ADD KEY IF NOT EXISTS reference (ref, kind),
  ADD KEY IF NOT EXISTS recorded (recorded_at, order_id, seq);
ALTER TABLE journal_1
  ADD COLUMN IF NOT EXISTS paid_at DATETIME(3) NULL,
  ADD COLUMN IF NOT EXISTS channel_refund_no VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL,
  ADD KEY IF NOT EXISTS merchant_kind (bid, kind, order_id, seq),
  ADD KEY IF NOT EXISTS kinds (kind, order_id, seq),
  ADD KEY IF NOT EXISTS reference (ref, kind),
  ADD KEY IF NOT EXISTS recorded (recorded_at, order_id, seq);
ALTER TABLE journal_2
  ADD COLUMN IF NOT EXISTS paid_at DATETIME(3) NULL,
  ADD COLUMN IF NOT EXISTS channel_refund_no VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL,
  ADD KEY IF NOT EXISTS merchant_kind (bid, kind, order_id, seq),
  ADD KEY IF NOT EXISTS kinds (kind, order_id, seq),
  ADD KEY IF NOT EXISTS reference (ref, kind),
  ADD KEY IF NOT EXISTS recorded (recorded_at, order_id, seq);
ALTER TABLE journal_3
  ADD COLUMN IF NOT EXISTS paid_at DATETIME(3) NULL,
  ADD COLUMN IF NOT EXISTS channel_refund_no VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL,
  ADD KEY IF NOT EXISTS merchant_kind (bid, kind, order_id, seq),
  ADD KEY IF NOT EXISTS kinds (kind, order_id, seq),
  ADD KEY IF NOT EXISTS reference (ref, kind),
  ADD KEY IF NOT EXISTS recorded (recorded_at, order_id, seq);
ALTER TABLE journal_4
  ADD COLUMN IF NOT EXISTS paid_at DATETIME(3) NULL,
  ADD COLUMN IF NOT EXISTS channel_refund_no VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL,
  ADD KEY IF NOT EXISTS merchant_kind (bid, kind, order_id, seq),
  ADD KEY IF NOT EXISTS kinds (kind, order_id, seq),
  ADD KEY IF NOT EXISTS reference (ref, kind),
  ADD KEY IF NOT EXISTS recorded (recorded_at, order_id, seq);
ALTER TABLE journal_5
  ADD COLUMN IF NOT EXISTS paid_at DATETIME(3) NULL,
  ADD COLUMN IF NOT EXISTS channel_refund_no VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL,
  ADD KEY IF NOT EXISTS merchant_kind (bid, kind, order_id, seq),
  ADD KEY IF NOT EXISTS kinds (kind, order_id, seq),
  ADD KEY IF NOT EXISTS reference (ref, kind),
  ADD KEY IF NOT EXISTS recorded (recorded_at, order_id, seq);
ALTER TABLE journal_6
  ADD COLUMN IF NOT EXISTS paid_at DATETIME(3) NULL,
  ADD COLUMN IF NOT EXISTS channel_refund_no VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL,
  ADD KEY IF NOT EXISTS merchant_kind (bid, kind, order_id, seq),
  ADD KEY IF NOT EXISTS kinds (kind, order_id, seq),
  ADD KEY IF NOT EXISTS reference (ref, kind),
  ADD KEY IF NOT EXISTS recorded (recorded_at, order_id, seq);
ALTER TABLE journal_7
  ADD COLUMN IF NOT EXISTS paid_at DATETIME(3) NULL,
  ADD COLUMN IF NOT EXISTS channel_refund_no VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL,
  ADD KEY IF NOT EXISTS merchant_kind (bid, kind, order_id, seq),
  ADD KEY IF NOT EXISTS kinds (kind, order_id, seq),
  ADD KEY IF NOT EXISTS reference (ref, kind),
  ADD KEY IF NOT EXISTS recorded (recorded_at, order_id, seq);
ALTER TABLE journal_8
  ADD COLUMN IF NOT EXISTS paid_at DATETIME(3) NULL,
  ADD COLUMN IF NOT EXISTS channel_refund_no VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL,
  ADD KEY IF NOT EXISTS merchant_kind (bid, kind, order_id, seq),
  ADD KEY IF NOT EXISTS kinds (kind, order_id, seq),
  ADD KEY IF NOT EXISTS reference (ref, kind),
  ADD KEY IF NOT EXISTS recorded (recorded_at, order_id, seq);
ALTER TABLE journal_9
  ADD COLUMN IF NOT EXISTS paid_at DATETIME(3) NULL,
  ADD COLUMN IF NOT EXISTS channel_refund_no VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL,
  ADD KEY IF NOT EXISTS merchant_kind (bid, kind, order_id, seq),
  ADD KEY IF NOT EXISTS kinds (kind, order_id, seq),
  ADD KEY IF NOT EXISTS reference (ref, kind),
  ADD KEY IF NOT EXISTS recorded (recorded_at, order_id, seq);
