{{ config(unique_key=['device_id', 'day']) }}

select
    device_id,
    cast(hour as date) as day,
    sum(readings) as count_readings,
    max(highest) as highest
from {{ source('silver', 'readings_per_hour') }}
group by device_id, cast(hour as date)
