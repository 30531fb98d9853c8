{{ config(unique_key='reading_id') }}

select
    id as reading_id,
    sensor_id,
    sensor.site,
    measured_at,
    value
from {{ source('silver', 'enriched_readings') }}
