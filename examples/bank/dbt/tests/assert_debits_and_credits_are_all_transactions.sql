select trans_id from {{ ref('stg_transactions') }}
except
(
    select trans_id from {{ ref('debits') }}
    union all
    select trans_id from {{ ref('credits') }}
)
