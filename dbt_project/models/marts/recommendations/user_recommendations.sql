{{ config(unique_key=['account_id', 'item_id']) }}

{% set count_wanted = var('recommendations_per_account') %}

with {% if is_incremental() %}
    changed_items as (

        {{ changed_keys(ref('int_item_neighbours'), ['item_id']) }}

    ),

    purchases_of_changed_items as (

        {{ rows_of(ref('int_purchases'), 'changed_items', ['item_id']) }}

    ),

    -- What is popular changes with each order; these accounts do without it.
    served_accounts as (

        select account_id from {{ this }}
        group by account_id
        having count_if(reason != 'popular') = {{ count_wanted }}

    ),

    affected as (

        {{ changed_keys(ref('int_purchases'), ['account_id']) }}
        union
        select account_id from purchases_of_changed_items
        union
        select purchases.account_id from {{ ref('int_purchases') }} as purchases
        left anti join served_accounts on purchases.account_id = served_accounts.account_id
        where purchases.is_account_open

    ),
{% endif %}

purchases as (

    {{ rows_of(ref('int_purchases'), 'affected', ['account_id']) }}

),

neighbours as (

    select * from {{ ref('int_item_neighbours') }}

),

items as (

    select * from {{ ref('stg_items') }}

),

pairs as (

    select * from {{ ref('int_item_pairs') }}

),

accounts as (

    select account_id from purchases
    group by account_id
    having bool_or(is_account_open)

),

owned as (

    select distinct
        purchases.account_id,
        purchases.item_id
    from purchases
    inner join accounts on purchases.account_id = accounts.account_id

),

bought as (

    select
        pairs.item_id,
        row_number() over (order by count(*) desc, pairs.item_id asc) as place
    from pairs
    inner join items on pairs.item_id = items.item_id
    where pairs.item_id = pairs.other_item_id
    group by pairs.item_id

),

popular as (

    select * from bought
    where place <= {{ var('popular_items') }}

),

candidates as (

    select
        owned.account_id,
        neighbours.other_item_id as item_id,
        -- A sum of decimals is the same in any order, a sum of doubles is not.
        cast(neighbours.confidence as decimal(13, 12)) as confidence,
        neighbours.count_shared_traits,
        cast(null as int) as place
    from owned
    inner join neighbours on owned.item_id = neighbours.item_id

    union all

    select
        accounts.account_id,
        popular.item_id,
        cast(0 as decimal(13, 12)) as confidence,
        0 as count_shared_traits,
        popular.place
    from accounts
    cross join popular

),

rated as (

    select
        account_id,
        item_id,
        sum(confidence) as score,
        sum(count_shared_traits) as count_shared_traits,
        min(place) as place
    from candidates
    group by account_id, item_id

),

judged as (

    select
        rated.account_id,
        rated.item_id,
        rated.score,
        rated.count_shared_traits,
        case
            when rated.score > 0 then 'bought together'
            when rated.count_shared_traits > 0 then 'alike'
            else 'popular'
        end as reason,
        rated.place
    from rated
    left anti join owned
        on
            rated.account_id = owned.account_id
            and rated.item_id = owned.item_id

),

ranked as (

    select
        *,
        row_number() over (
            partition by account_id
            order by
                score desc,
                count_shared_traits desc,
                case when reason = 'popular' then place end asc,
                item_id asc
        ) as rank
    from judged

),

final as (

    select
        account_id,
        rank,
        item_id,
        cast(score as double) as score,
        reason
    from ranked
    where rank <= {{ count_wanted }}

)

{{ replacing('final', 'affected', ['account_id']) }}
