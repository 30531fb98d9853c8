{{ config(unique_key=['device_id', 'sequence']) }}

select
    device_id,
    sequence,
    tenant,
    config.site,
    config.maximum as temperature_limit,
    temperature,
    latitude,
    longitude,
    coalesce(array_contains(tags, 'calibrated'), false) as is_calibrated,
    measured_at
from {{ source('silver', 'enriched_readings') }}
