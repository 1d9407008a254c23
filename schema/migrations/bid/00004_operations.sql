-- +goose Up
-- What an operation of an order did: how a list finds what became of one unapplied payment
-- without the whole journal of its order.
ALTER TABLE journal_0 ADD KEY IF NOT EXISTS operation (order_id, op);
ALTER TABLE journal_1 ADD KEY IF NOT EXISTS operation (order_id, op);
ALTER TABLE journal_2 ADD KEY IF NOT EXISTS operation (order_id, op);
ALTER TABLE journal_3 ADD KEY IF NOT EXISTS operation (order_id, op);
ALTER TABLE journal_4 ADD KEY IF NOT EXISTS operation (order_id, op);
ALTER TABLE journal_5 ADD KEY IF NOT EXISTS operation (order_id, op);
ALTER TABLE journal_6 ADD KEY IF NOT EXISTS operation (order_id, op);
ALTER TABLE journal_7 ADD KEY IF NOT EXISTS operation (order_id, op);
ALTER TABLE journal_8 ADD KEY IF NOT EXISTS operation (order_id, op);
ALTER TABLE journal_9 ADD KEY IF NOT EXISTS operation (order_id, op);
