-- A database whose tables are those of the catalog, read as they are now: SELECT * FROM lake.`iot.sensors`
-- `<token>` is the catalog's, of the embedded one what `lakehouse-ingest catalog serve` prints.
-- `http://localhost:9000/lake` is the store's endpoint with the bucket of `catalog.warehouse`, s3://lake/… here.
SET allow_experimental_database_iceberg = 1;

CREATE DATABASE lake
ENGINE = DataLakeCatalog('http://localhost:8181/v1', '<access key>', '<secret key>')
SETTINGS catalog_type = 'rest', auth_header = 'Authorization: Bearer <token>', storage_endpoint = 'http://localhost:9000/lake', warehouse = 'lake';
