-- Fails if the balances of the accounts do not sum up to the entries of the ledger.
with ledger as (

    select sum(points) as points from {{ ref('reward_ledger') }}

),

balances as (

    select sum(points) as points from {{ ref('reward_points') }}

)

select
    ledger.points as ledger_points,
    balances.points as balance_points
from ledger
cross join balances
where ledger.points != balances.points
