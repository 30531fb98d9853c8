-- The enrichment as Flink SQL. What is in braces is filled in by systems.py.

CREATE CATALOG lake WITH ('type' = 'paimon', 'warehouse' = '${warehouse}');

-- The columns of silver.enriched_orders that come from messages. Two buckets, for two cores. Data
-- files stay ORC: of Parquet, Paimon 0.8 cannot read times within a row back, and so not compact.
CREATE TABLE IF NOT EXISTS lake.`default`.enriched_orders (
  invoice_id BIGINT,
  line_item_id BIGINT,
  user_id BIGINT,
  item_id BIGINT,
  item_name STRING,
  item_category STRING,
  price DECIMAL(12, 2),
  created_at TIMESTAMP_LTZ(3),
  paid_at TIMESTAMP_LTZ(3),
  `user` ROW<
    id BIGINT, first_name STRING, last_name STRING, email_address STRING,
    created_at TIMESTAMP_LTZ(3), deleted_at TIMESTAMP_LTZ(3), merged_at TIMESTAMP_LTZ(3),
    parent_user_id BIGINT>,
  item ROW<
    id BIGINT, created_at TIMESTAMP_LTZ(3), adjective STRING, category STRING, modifier STRING,
    name STRING, price DECIMAL(12, 2)>,
  publish_time TIMESTAMP_LTZ(3),
  PRIMARY KEY (invoice_id, line_item_id) NOT ENFORCED
) WITH ('bucket' = '2', 'manifest.format' = 'orc');

-- Changelogs: the latest message of a key, an empty one deletes it.
CREATE TEMPORARY TABLE users (
  id BIGINT,
  firstName STRING,
  lastName STRING,
  emailAddress STRING,
  createdAt BIGINT,
  deletedAt BIGINT,
  mergedAt BIGINT,
  parentUserId BIGINT,
  PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'upsert-pulsar',
  'topics' = 'persistent://${namespace}/users',
  'source.subscription-name' = 'flink-users',
  'key.format' = 'csv',
  'value.format' = 'json',
  ${pulsar}
);

CREATE TEMPORARY TABLE items (
  id BIGINT,
  createdAt BIGINT,
  adjective STRING,
  category STRING,
  modifier STRING,
  name STRING,
  price DECIMAL(12, 2),
  PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'upsert-pulsar',
  'topics' = 'persistent://${namespace}/items',
  'source.subscription-name' = 'flink-items',
  'key.format' = 'csv',
  'value.format' = 'json',
  ${pulsar}
);

CREATE TEMPORARY TABLE orders (
  invoiceId BIGINT,
  lineItemId BIGINT,
  userId BIGINT,
  itemId BIGINT,
  itemName STRING,
  itemCategory STRING,
  price DECIMAL(12, 2),
  createdAt BIGINT,
  paidAt BIGINT,
  publish_time TIMESTAMP_LTZ(3) METADATA,
  arrival AS PROCTIME()
) WITH (
  'connector' = 'pulsar',
  'topics' = 'persistent://${namespace}/orders',
  'source.subscription-name' = 'flink-orders',
  'format' = 'json',
  ${pulsar}
);

-- Of an order that is sent twice the first message counts. Both joins keep their rows, so an order
-- that comes first is written with NULL, and again when its user or item is there.
INSERT INTO lake.`default`.enriched_orders
SELECT
  o.invoiceId,
  o.lineItemId,
  o.userId,
  o.itemId,
  o.itemName,
  o.itemCategory,
  o.price,
  TO_TIMESTAMP_LTZ(o.createdAt, 3),
  TO_TIMESTAMP_LTZ(NULLIF(o.paidAt, -1), 3),
  CASE WHEN u.id IS NOT NULL THEN ROW(
    u.id, u.firstName, u.lastName, u.emailAddress,
    TO_TIMESTAMP_LTZ(u.createdAt, 3), TO_TIMESTAMP_LTZ(NULLIF(u.deletedAt, -1), 3),
    TO_TIMESTAMP_LTZ(NULLIF(u.mergedAt, -1), 3), NULLIF(u.parentUserId, -1)) END,
  CASE WHEN i.id IS NOT NULL THEN ROW(
    i.id, TO_TIMESTAMP_LTZ(i.createdAt, 3), i.adjective, i.category, i.modifier,
    i.name, i.price) END,
  o.publish_time
FROM (
  SELECT
    *,
    ROW_NUMBER() OVER (PARTITION BY invoiceId, lineItemId ORDER BY arrival) AS occurrence
  FROM orders
) AS o
LEFT JOIN users AS u ON o.userId = u.id
LEFT JOIN items AS i ON o.itemId = i.id
WHERE o.occurrence = 1;
