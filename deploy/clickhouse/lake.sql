-- A database whose tables are those of the catalog, read as they are now: SELECT * FROM lake.`iot.sensors`
-- `http://localhost:9000/lake` is the store's endpoint with the bucket of `catalog.warehouse`, s3://lake/… here.
SET allow_experimental_database_iceberg = 1;

CREATE DATABASE lake
ENGINE = DataLakeCatalog('http://localhost:8181/v1', '<access key>', '<secret key>')
SETTINGS catalog_type = 'rest', storage_endpoint = 'http://localhost:9000/lake', warehouse = 'lake';
