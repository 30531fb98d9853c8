-- Fails if the sum of the account balances differs from the sum of the ledger entries.
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
