{# Points per unit of currency that a line of a category earns, by the rules in dbt_project.yml. #}
{% macro points_per_unit(category) %}
    cast(
        {{ var("points_per_currency_unit") }} * case {{ category }}
            {% for name, multiplier in var("category_multipliers").items() %}
                when '{{ name }}' then {{ multiplier }}
            {% endfor %}
            else 1
        end as decimal(9, 4)
    )
{% endmacro %}


{# The tier of so many points, by the rules in dbt_project.yml; the lowest is `basic`. #}
{% macro tier(points) %}
    case
        {% for name, least in var("tiers").items() | sort(attribute="1", reverse=true) %}
            when {{ points }} >= {{ least }} then '{{ name }}'
        {% endfor %}
        else 'basic'
    end
{% endmacro %}


{# Whether an order line is a purchase, for recommendations: of an item, and not a refund. #}
{% macro is_purchase() %}item_id is not null and coalesce(price, 0) >= 0{% endmacro %}
