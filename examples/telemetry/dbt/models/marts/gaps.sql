{{ config(unique_key=['device_id', 'sequence']) }}

with readings as (

    select
        device_id,
        sequence,
        measured_at,
        lag(measured_at) over (
            partition by device_id order by measured_at, sequence
        ) as previous_at
    from {{ ref('stg_readings') }}

)

select
    device_id,
    sequence,
    previous_at as gap_from,
    measured_at as gap_to
from readings
where measured_at > previous_at + interval 2 hours
