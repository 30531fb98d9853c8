with counted as (

    select sum(count_readings) as total from {{ ref('readings_by_day') }}

),

sent as (

    select count(*) as total from {{ ref('stg_readings') }}

)

select
    counted.total as count_counted,
    sent.total as count_sent
from counted
cross join sent
where counted.total <> sent.total
