{{ config(unique_key=['invoice_id', 'item_id', 'other_item_id']) }}

with purchases as (

    select * from {{ ref('int_purchases') }}

),

items as (

    select distinct
        invoice_id,
        item_id
    from purchases

),

counted as (

    select
        *,
        count(*) over (partition by invoice_id) as count_items
    from items

),

baskets as (

    select * from counted
    where count_items <= {{ var('largest_basket') }}

),

final as (

    select
        one.invoice_id,
        one.item_id,
        other.item_id as other_item_id
    from baskets as one
    inner join baskets as other on one.invoice_id = other.invoice_id

)

select * from final
