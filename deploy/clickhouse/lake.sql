-- Creates a database with the tables of the catalog. Each query sees their current state: SELECT * FROM lake.`iot.sensors`
-- `<token>` is the token of the catalog. `lakehouse-ingest catalog serve` prints that of the embedded one.
-- `http://localhost:9000/lake` is the endpoint of the store with the bucket of `catalog.warehouse`, here s3://lake/….
SET allow_experimental_database_iceberg = 1;

CREATE DATABASE lake
ENGINE = DataLakeCatalog('http://localhost:8181/v1', '<access key>', '<secret key>')
SETTINGS catalog_type = 'rest', auth_header = 'Authorization: Bearer <token>', storage_endpoint = 'http://localhost:9000/lake', warehouse = 'lake';
