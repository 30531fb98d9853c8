{{ config(unique_key=['device_id', 'sequence']) }}

select
    device_id,
    sequence,
    tenant,
    site,
    temperature,
    temperature_limit,
    latitude,
    longitude,
    is_calibrated,
    measured_at
from {{ ref('stg_readings') }}
where temperature > temperature_limit
