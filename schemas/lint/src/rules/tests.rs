mod acceptance;
mod field;
mod fixes;
mod pages;
mod shown;
mod spelled;
