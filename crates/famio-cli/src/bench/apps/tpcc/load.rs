//! The tables, and what is in them at first.

use super::draw::last_name;
use super::scale::{DISTRICTS, FIRST_PAYMENT, Scale};
use crate::bench::sqlite3::{Connection, Value};

const TABLES: [&str; 11] = [
    "CREATE TABLE warehouse(w_id INTEGER PRIMARY KEY, w_name TEXT, w_address TEXT, w_tax INTEGER, w_ytd INTEGER)",
    "CREATE TABLE district(d_id INTEGER PRIMARY KEY, d_name TEXT, d_address TEXT, d_tax INTEGER, d_ytd INTEGER, \
     d_next_o_id INTEGER)",
    "CREATE TABLE customer(c_d_id INTEGER, c_id INTEGER, c_first TEXT, c_last TEXT, c_address TEXT, c_credit TEXT, \
     c_discount INTEGER, c_balance INTEGER, c_ytd_payment INTEGER, c_payment_cnt INTEGER, c_delivery_cnt INTEGER, \
     c_data TEXT, PRIMARY KEY(c_d_id, c_id)) WITHOUT ROWID",
    "CREATE INDEX customer_by_name ON customer(c_d_id, c_last, c_first)",
    "CREATE TABLE history(h_c_id INTEGER, h_d_id INTEGER, h_date INTEGER, h_amount INTEGER, h_data TEXT)",
    "CREATE TABLE new_order(no_d_id INTEGER, no_o_id INTEGER, PRIMARY KEY(no_d_id, no_o_id)) WITHOUT ROWID",
    "CREATE TABLE orders(o_d_id INTEGER, o_id INTEGER, o_c_id INTEGER, o_entry_d INTEGER, o_carrier_id INTEGER, \
     o_ol_cnt INTEGER, PRIMARY KEY(o_d_id, o_id)) WITHOUT ROWID",
    "CREATE INDEX orders_by_customer ON orders(o_d_id, o_c_id, o_id)",
    "CREATE TABLE order_line(ol_d_id INTEGER, ol_o_id INTEGER, ol_number INTEGER, ol_i_id INTEGER, \
     ol_delivery_d INTEGER, ol_quantity INTEGER, ol_amount INTEGER, ol_dist_info TEXT, \
     PRIMARY KEY(ol_d_id, ol_o_id, ol_number)) WITHOUT ROWID",
    "CREATE TABLE item(i_id INTEGER PRIMARY KEY, i_name TEXT, i_price INTEGER, i_data TEXT)",
    "CREATE TABLE stock(s_i_id INTEGER PRIMARY KEY, s_quantity INTEGER, s_dist TEXT, s_ytd INTEGER, \
     s_order_cnt INTEGER, s_data TEXT)",
];

/// Makes tables and rows in one transaction.
pub fn load(connection: &Connection<'_>, scale: Scale) -> Result<(), String> {
    connection.run(&["BEGIN"])?;
    connection.run(&TABLES)?;
    let mut random = fastrand::Rng::with_seed(1);
    let mut text = |length: usize| (0..length).map(|_| random.alphanumeric()).collect::<String>();
    let ytd = scale.customers * FIRST_PAYMENT;
    let mut warehouse = connection.prepare("INSERT INTO warehouse VALUES(1, ?1, ?2, 1000, ?3)")?;
    warehouse.run(&[Value::Text(&text(8)), Value::Text(&text(70)), Value::Number(ytd * DISTRICTS)], |_| Ok(()))?;
    items(connection, scale, &mut text)?;
    let mut district = connection.prepare("INSERT INTO district VALUES(?1, ?2, ?3, 500, ?4, ?5)")?;
    for number in 1..=DISTRICTS {
        let (name, address) = (text(8), text(70));
        let next = scale.customers + 1;
        let values = [Value::Number(number), Value::Text(&name), Value::Text(&address)];
        let values = values.into_iter().chain([Value::Number(ytd), Value::Number(next)]).collect::<Vec<_>>();
        district.run(&values, |_| Ok(()))?;
        customers(connection, scale, number, &mut text)?;
        orders(connection, scale, number)?;
    }
    drop((warehouse, district));
    connection.run(&["COMMIT"])
}

fn items(connection: &Connection<'_>, scale: Scale, text: &mut impl FnMut(usize) -> String) -> Result<(), String> {
    let mut item = connection.prepare("INSERT INTO item VALUES(?1, ?2, ?3, ?4)")?;
    let mut stock = connection.prepare("INSERT INTO stock VALUES(?1, ?2, ?3, 0, 0, ?4)")?;
    for number in 1..=scale.items {
        let (name, data, info, stock_data) = (text(18), text(38), text(24 * DISTRICTS as usize), text(38));
        let price = 100 + number * 7919 % 9900;
        item.run(&[Value::Number(number), Value::Text(&name), Value::Number(price), Value::Text(&data)], |_| Ok(()))?;
        let quantity = 10 + number * 31 % 91;
        let values = [Value::Number(number), Value::Number(quantity), Value::Text(&info), Value::Text(&stock_data)];
        stock.run(&values, |_| Ok(()))?;
    }
    Ok(())
}

fn customers(
    connection: &Connection<'_>,
    scale: Scale,
    district: i64,
    text: &mut impl FnMut(usize) -> String,
) -> Result<(), String> {
    let mut customer =
        connection.prepare("INSERT INTO customer VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, -1000, ?8, 1, 0, ?9)")?;
    let mut history = connection.prepare("INSERT INTO history VALUES(?1, ?2, 0, ?3, ?4)")?;
    for number in 1..=scale.customers {
        let (first, address, data, paid_for) = (text(12), text(90), text(400), text(18));
        let last = last_name((number - 1) % 1000);
        // One of ten has bad credit.
        let credit = if number % 10 == 0 { "BC" } else { "GC" };
        customer.run(
            &[
                Value::Number(district),
                Value::Number(number),
                Value::Text(&first),
                Value::Text(&last),
                Value::Text(&address),
                Value::Text(credit),
                Value::Number(number % 5000),
                Value::Number(FIRST_PAYMENT),
                Value::Text(&data),
            ],
            |_| Ok(()),
        )?;
        let (of, to) = (Value::Number(number), Value::Number(district));
        history.run(&[of, to, Value::Number(FIRST_PAYMENT), Value::Text(&paid_for)], |_| Ok(()))?;
    }
    Ok(())
}

/// One of each customer; the last three of ten are not delivered yet.
fn orders(connection: &Connection<'_>, scale: Scale, district: i64) -> Result<(), String> {
    let mut order = connection.prepare("INSERT INTO orders VALUES(?1, ?2, ?3, 0, ?4, ?5)")?;
    let mut line = connection.prepare("INSERT INTO order_line VALUES(?1, ?2, ?3, ?4, ?5, 5, ?6, ?7)")?;
    let mut new = connection.prepare("INSERT INTO new_order VALUES(?1, ?2)")?;
    let mut random = fastrand::Rng::with_seed(district as u64);
    let mut of: Vec<i64> = (1..=scale.customers).collect();
    random.shuffle(&mut of);
    let number = Value::Number;
    for (id, &customer) in (1..).zip(&of) {
        let is_new = id > scale.customers * 7 / 10;
        let (carrier, delivered) = if is_new { (0, 0) } else { (random.i64(1..=10), 1) };
        let lines = random.i64(5..=15);
        order.run(&[number(district), number(id), number(customer), number(carrier), number(lines)], |_| Ok(()))?;
        for at in 1..=lines {
            let item = random.i64(1..=scale.items);
            let amount = if is_new { random.i64(1..=999_999) } else { 0 };
            let info = [number(district), number(id), number(at), number(item), number(delivered), number(amount)];
            let info = info.into_iter().chain([Value::Text("012345678901234567890123")]).collect::<Vec<_>>();
            line.run(&info, |_| Ok(()))?;
        }
        if is_new {
            new.run(&[number(district), number(id)], |_| Ok(()))?;
        }
    }
    Ok(())
}
