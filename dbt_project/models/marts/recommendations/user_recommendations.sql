{{ config(unique_key=['account_id', 'item_id']) }}

with recommendations as (

    select * from {{ ref('int_recommendations') }}

),

items as (

    select * from {{ ref('stg_items') }}

),

purchases as (

    select * from {{ ref('int_purchases') }}

),

open_accounts as (

    select account_id
    from purchases
    group by account_id
    having bool_or(is_account_open)

),

-- What has changed since the recommendations were computed.
still_right as (

    select recommendations.*
    from recommendations
    inner join open_accounts on recommendations.account_id = open_accounts.account_id
    left semi join items on recommendations.item_id = items.item_id
    left anti join purchases
        on
            recommendations.account_id = purchases.account_id
            and recommendations.item_id = purchases.item_id

),

ranked as (

    select
        account_id,
        item_id,
        score,
        reason,
        row_number() over (partition by account_id order by rank) as rank
    from still_right

),

final as (

    select
        account_id,
        rank,
        item_id,
        score,
        reason
    from ranked
    where rank <= {{ var('recommendations_per_account') }}

)

select * from final
