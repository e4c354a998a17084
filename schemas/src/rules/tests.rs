mod acceptance;
mod field;
mod pages;
